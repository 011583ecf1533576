package idempotency

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// grpcAnswer is what a handler answered.
type grpcAnswer struct {
	status  []byte // google.rpc.Status; empty: OK
	header  map[string][]string
	trailer map[string][]string
	kind    string // full name of the reply's message
	reply   []byte
}

var deterministic = proto.MarshalOptions{Deterministic: true}

// encodeRequest returns the type and the bytes of a request.
func encodeRequest(req any) ([]byte, error) {
	m, ok := req.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%w: its request is a %T, want a protobuf message", errWrongFormat, req)
	}
	b, err := deterministic.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errWrongFormat, err)
	}
	return appendPart(appendPart(nil, string(m.ProtoReflect().Descriptor().FullName())), b), nil
}

func (g *Guard) judgeGRPC(reply any, failed error, rec *streamRecorder) result {
	st := statusFrom(failed)
	v := g.o.Refusals.judgeCode(st.Code())
	if v == release {
		return result{verdict: v}
	}
	a := grpcAnswer{}
	a.header, a.trailer = rec.recorded()
	var err error
	if st.Code() != codes.OK {
		a.status, err = deterministic.Marshal(st.Proto())
	} else if m, ok := reply.(proto.Message); ok {
		a.kind = string(m.ProtoReflect().Descriptor().FullName())
		a.reply, err = deterministic.Marshal(m)
	} else {
		err = errWrongFormat
	}
	if err != nil {
		// It ran; that it must not again is all that can be kept.
		return result{v, notKept()}
	}
	answer := a.encode(g.withheld)
	if len(answer) > g.o.MaxAnswer {
		answer = notKept()
	}
	return result{v, answer}
}

// statusFrom is the status that gRPC's server makes of a handler's error.
func statusFrom(err error) *status.Status {
	if st, ok := status.FromError(err); ok {
		return st
	}
	return status.FromContextError(err)
}

func (a *grpcAnswer) encode(withheld map[string]bool) []byte {
	b := appendPart([]byte{formGRPC}, a.status)
	b = appendFields(b, a.header, withheld)
	b = appendFields(b, a.trailer, withheld)
	b = appendPart(b, a.kind)
	return appendPart(b, a.reply)
}

// decodeGRPC reads an answer; nil if it was not kept.
func decodeGRPC(kept []byte) (*grpcAnswer, error) {
	switch {
	case bytes.Equal(kept, notKept()):
		return nil, nil
	case len(kept) == 0 || kept[0] != formGRPC:
		return nil, fmt.Errorf("%w: it is not one of gRPC", errDamaged)
	}
	r := reader{rest: kept[1:]}
	a := &grpcAnswer{status: r.part(), header: r.fields(), trailer: r.fields(), kind: string(r.part()), reply: r.part()}
	if err := r.end(); err != nil {
		return nil, err
	}
	return a, nil
}

// replay answers a call again.
func (a *grpcAnswer) replay(ctx context.Context) (reply any, failed, err error) {
	m, failed, err := a.decode()
	if err == nil {
		err = grpc.SetHeader(ctx, metadata.Join(a.header, metadata.Pairs(Replayed, "true")))
	}
	if err == nil {
		err = grpc.SetTrailer(ctx, a.trailer)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errStore, err)
	}
	return m, failed, nil
}

// decode returns the reply or the status that the answer holds.
func (a *grpcAnswer) decode() (reply proto.Message, failed, err error) {
	if len(a.status) > 0 {
		p := status.New(codes.Unknown, "").Proto()
		proto.Reset(p)
		if err := proto.Unmarshal(a.status, p); err != nil {
			return nil, nil, fmt.Errorf("%w: status: %w", errDamaged, err)
		}
		if p.GetCode() == int32(codes.OK) {
			return nil, nil, fmt.Errorf("%w: an error of code OK", errDamaged)
		}
		return nil, status.FromProto(p).Err(), nil
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(a.kind))
	if err != nil {
		return nil, nil, fmt.Errorf("reply %q: %w", a.kind, err)
	}
	reply = kind.New().Interface()
	if err := proto.Unmarshal(a.reply, reply); err != nil {
		return nil, nil, fmt.Errorf("%w: reply %q: %w", errDamaged, a.kind, err)
	}
	return reply, nil, nil
}

// streamRecorder notes the header and trailer that a handler sets; they go out
// as they would without it.
type streamRecorder struct {
	grpc.ServerTransportStream // nil outside a server

	mu              sync.Mutex
	header, trailer metadata.MD
}

func (s *streamRecorder) SetHeader(md metadata.MD) error {
	return s.note(&s.header, md, s.ServerTransportStream.SetHeader(md))
}

func (s *streamRecorder) SendHeader(md metadata.MD) error {
	return s.note(&s.header, md, s.ServerTransportStream.SendHeader(md))
}

func (s *streamRecorder) SetTrailer(md metadata.MD) error {
	return s.note(&s.trailer, md, s.ServerTransportStream.SetTrailer(md))
}

func (s *streamRecorder) note(to *metadata.MD, md metadata.MD, err error) error {
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		*to = metadata.Join(*to, md)
	}
	return err
}

func (s *streamRecorder) recorded() (header, trailer metadata.MD) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header, s.trailer
}
