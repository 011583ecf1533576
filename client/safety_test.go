package client

import (
	"fmt"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

type noFiles = protoregistry.Files

// declaredFiles declares a method for each idempotency level.
func declaredFiles(t *testing.T) *protoregistry.Files {
	method := func(name string, options *descriptorpb.MethodOptions) *descriptorpb.MethodDescriptorProto {
		return &descriptorpb.MethodDescriptorProto{
			Name: &name, InputType: proto.String(".test.Empty"), OutputType: proto.String(".test.Empty"), Options: options,
		}
	}
	level := func(l descriptorpb.MethodOptions_IdempotencyLevel) *descriptorpb.MethodOptions {
		return &descriptorpb.MethodOptions{IdempotencyLevel: &l}
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name:        proto.String("test/declared.proto"),
		Package:     proto.String("test"),
		Syntax:      proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Empty")}},
		Service: []*descriptorpb.ServiceDescriptorProto{{
			Name: proto.String("Declared"),
			Method: []*descriptorpb.MethodDescriptorProto{
				method("Read", level(descriptorpb.MethodOptions_NO_SIDE_EFFECTS)),
				method("Put", level(descriptorpb.MethodOptions_IDEMPOTENT)),
				method("Unknown", level(descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN)),
				method("Silent", nil),
			},
		}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files := new(protoregistry.Files)
	if err := files.RegisterFile(file); err != nil {
		t.Fatal(err)
	}
	return files
}

func TestSafety(t *testing.T) {
	files := declaredFiles(t)
	listed := func(m string) bool { return m == "/other.Service/Listed" }
	tests := []struct {
		method        string
		safe, trusted bool // trusted: where the application trusts IDEMPOTENT
	}{
		{"/test.Declared/Read", true, true},
		{"/test.Declared/Put", false, true},
		{"/test.Declared/Unknown", false, false},
		{"/test.Declared/Silent", false, false},
		{"/test.Declared/Missing", false, false},
		{"/test.Declared", false, false},
		{"/test.Empty", false, false},
		{"/other.Service/Listed", true, true},
		{"/other.Service/Unlisted", false, false},
		{"", false, false},
		{"/", false, false},
		{"//", false, false},
	}
	for _, tt := range tests {
		for range 2 { // looked up, then remembered
			if got := (&safety{listed: listed, files: files}).safe(tt.method); got != tt.safe {
				t.Errorf("safe(%q) = %v, want %v", tt.method, got, tt.safe)
			}
			if got := (&safety{listed: listed, idempotent: true, files: files}).safe(tt.method); got != tt.trusted {
				t.Errorf("safe(%q) = %v where IDEMPOTENT is trusted, want %v", tt.method, got, tt.trusted)
			}
		}
	}
}

// Methods made of ids do not grow the cache without end, and their answers stay right.
func TestSafetyCacheIsBounded(t *testing.T) {
	var asked atomic.Int64
	s := &safety{listed: func(string) bool { asked.Add(1); return true }, files: new(noFiles)}
	for range 2 {
		for i := range 2 * maxMethods {
			if !s.safe(fmt.Sprintf("/p.S/m%d", i)) {
				t.Fatal("a listed method is not safe")
			}
		}
	}
	if kept := s.kept.Load(); kept != maxMethods {
		t.Errorf("%d methods remembered, want %d", kept, maxMethods)
	}
	if got := asked.Load(); got != 3*maxMethods {
		t.Errorf("the list was asked %d times, want %d", got, 3*maxMethods)
	}
}
