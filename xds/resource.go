package xds

import (
	"crypto/sha256"
	"encoding/binary"
	"io"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// resource is one content of one name. It never changes after Set, so all
// streams share it, bytes included.
type resource struct {
	name    string
	version string
	hash    uint64 // of name and version

	// wire is the resource as an element of DeltaDiscoveryResponse.resources, tag
	// and length included. Its end is the content as an element of
	// DiscoveryResponse.resources: field 2 of either message, and of Resource.
	wire       []byte
	delta      mem.Buffer
	stateOfAll mem.Buffer

	spread spread
}

// Numbers of fields in envoy.service.discovery.v3.
const (
	fieldVersionInfo = 1 // of DiscoveryResponse
	fieldResources   = 2 // of both responses
	fieldTypeURL     = 4
	fieldNonce       = 5
	fieldRemoved     = 6 // of DeltaDiscoveryResponse

	fieldResourceVersion = 1 // of Resource
	fieldResourceContent = 2
	fieldResourceName    = 3

	fieldAnyTypeURL = 1 // of google.protobuf.Any
	fieldAnyValue   = 2
)

func newResource(typeURL, name, version string, content []byte) *resource {
	hash := sha256.New()
	_, _ = io.WriteString(hash, name+"\x00"+version) // names have no such character
	r := &resource{name: name, version: version, hash: binary.BigEndian.Uint64(hash.Sum(nil))}

	size := bytesSize(fieldAnyTypeURL, len(typeURL)) + bytesSize(fieldAnyValue, len(content))
	inner := bytesSize(fieldResourceName, len(name)) + bytesSize(fieldResourceVersion, len(version)) + bytesSize(fieldResourceContent, size)
	b := make([]byte, 0, bytesSize(fieldResources, inner))
	b = protowire.AppendTag(b, fieldResources, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(inner))
	b = appendText(b, fieldResourceName, name)
	b = appendText(b, fieldResourceVersion, version)
	end := len(b)
	b = protowire.AppendTag(b, fieldResourceContent, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = appendText(b, fieldAnyTypeURL, typeURL)
	b = protowire.AppendTag(b, fieldAnyValue, protowire.BytesType)
	b = protowire.AppendBytes(b, content)
	r.wire, r.delta, r.stateOfAll = b, mem.SliceBuffer(b), mem.SliceBuffer(b[end:])
	return r
}

func bytesSize(field protowire.Number, n int) int {
	return protowire.SizeTag(field) + protowire.SizeBytes(n)
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}
