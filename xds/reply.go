package xds

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// reply is one response in the form common to both variants.
type reply struct {
	typeURL   string
	version   string // of the response; SotW only
	nonce     string
	resources []*resource
	removed   []string // delta only
}

// add tells what there is under a name: its content, or its absence. "the API
// provides no mechanism for the server to tell the client that resources have
// been deleted" in the state of the world (xDS protocol, "Deleting Resources").
func (r *reply) add(name string, content *resource, kind StreamKind) {
	switch {
	case content != nil:
		r.resources = append(r.resources, content)
	case kind == Delta:
		r.removed = append(r.removed, name)
	}
}

func (r *reply) carries() bool { return len(r.resources)+len(r.removed) > 0 }

// cost is the most that add takes of a message.
func cost(name string, content *resource) int {
	if content != nil {
		return len(content.wire)
	}
	return bytesSize(fieldRemoved, len(name))
}

func (r *reply) size() int {
	n := 0
	for _, res := range r.resources {
		n += len(res.wire)
	}
	return n
}

// message is a response as it is on the wire: the shared bytes of its resources,
// and what is its own.
type message mem.BufferSlice

func (r *reply) message(kind StreamKind) message {
	n := len(r.typeURL) + len(r.nonce) + len(r.version) + 16
	for _, name := range r.removed {
		n += len(name) + 4
	}
	own := make([]byte, 0, n)
	if r.version != "" {
		own = appendText(own, fieldVersionInfo, r.version)
	}
	own = appendText(own, fieldTypeURL, r.typeURL)
	own = appendText(own, fieldNonce, r.nonce)
	for _, name := range r.removed {
		own = appendText(own, fieldRemoved, name)
	}
	parts := make(message, 0, len(r.resources)+1)
	for _, res := range r.resources {
		if kind == Delta {
			parts = append(parts, res.delta)
		} else {
			parts = append(parts, res.stateOfAll)
		}
	}
	return append(parts, mem.SliceBuffer(own))
}

// Codec returns the codec that a gRPC server with a Server's services needs, by
// grpc.ForceServerCodecV2. It is gRPC's own for all messages but for responses,
// whose resources it does not marshal again for each stream.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(message); ok {
		return mem.BufferSlice(m), nil
	}
	return c.CodecV2.Marshal(v)
}
