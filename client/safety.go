package client

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// keyMetadata carries the key by which a server knows the copies of one call and
// carries it out once (draft-ietf-httpapi-idempotency-key-header; package
// idempotency is such a server).
const keyMetadata = "idempotency-key"

// keyed reports whether a call carries a key: then it may run twice, whatever its
// method. Two keys are no key: a server must refuse them.
func keyed(ctx context.Context) bool {
	md, _ := metadata.FromOutgoingContext(ctx)
	keys := md[keyMetadata]
	return len(keys) == 1 && keys[0] != ""
}

// safety knows which methods may run twice. A method is safe when the
// application lists it, when its proto declares
// idempotency_level = NO_SIDE_EFFECTS, or when it declares IDEMPOTENT and the
// application trusts that; an idempotent write still writes, twice. A method of
// which nothing is known is not safe.
//
// It may be used from any goroutine.
type safety struct {
	listed     func(fullMethod string) bool // the application's list; may be nil
	idempotent bool                         // trust idempotency_level = IDEMPOTENT
	files      *protoregistry.Files

	known sync.Map     // full method -> bool
	kept  atomic.Int64 // entries in known, about
}

// safe reports whether a call of fullMethod ("/pkg.Service/Method") may run
// twice. The answer for a method is taken once: up to maxMethods of them are
// remembered, further ones are looked up for each call.
func (s *safety) safe(fullMethod string) bool {
	if v, ok := s.known.Load(fullMethod); ok {
		return v.(bool)
	}
	safe := s.listed != nil && s.listed(fullMethod) || s.declared(fullMethod)
	if s.kept.Load() < maxMethods {
		if _, had := s.known.LoadOrStore(strings.Clone(fullMethod), safe); !had {
			s.kept.Add(1)
		}
	}
	return safe
}

// declared reports whether the proto descriptor that is linked into this
// program declares the method safe.
func (s *safety) declared(fullMethod string) bool {
	service, name, ok := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	if !ok {
		return false
	}
	d, err := s.files.FindDescriptorByName(protoreflect.FullName(service + "." + name))
	if err != nil {
		return false
	}
	method, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return false
	}
	options, ok := method.Options().(*descriptorpb.MethodOptions)
	if !ok {
		return false
	}
	switch options.GetIdempotencyLevel() {
	case descriptorpb.MethodOptions_NO_SIDE_EFFECTS:
		return true
	case descriptorpb.MethodOptions_IDEMPOTENT:
		return s.idempotent
	}
	return false
}
