package idempotency

import (
	"errors"
	"reflect"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var noneWithheld = map[string]bool{}

func httpSeeds() []*httpAnswer {
	return []*httpAnswer{
		{status: 200, header: map[string][]string{}, trailer: map[string][]string{}, body: []byte{}},
		{
			status:  201,
			header:  map[string][]string{"Link": {"</a>; rel=a, </b>", "</c>"}, "x-Mixed-CASE": {"", "a, b"}, "Date": {}},
			trailer: map[string][]string{"Trailer:Sum": {"\xff"}},
			body:    []byte("\x00body\r\n"),
		},
	}
}

func TestHTTPAnswerRoundTrip(t *testing.T) {
	for _, a := range httpSeeds() {
		got, err := decodeHTTP(a.encode(noneWithheld))
		if err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%+v came back as %+v, %v", a, got, err)
		}
	}
}

func TestCutAnswersAreDamaged(t *testing.T) {
	whole := httpSeeds()[1].encode(noneWithheld)
	for n := range whole {
		if a, err := decodeHTTP(whole[:n]); !errors.Is(err, errDamaged) {
			t.Errorf("the first %d of %d bytes decode to %+v, %v", n, len(whole), a, err)
		}
	}
	if _, err := decodeHTTP(append(whole, 0)); !errors.Is(err, errDamaged) {
		t.Errorf("one byte too many: %v", err)
	}
}

func TestAnswersOfTheOtherProtocolAreDamaged(t *testing.T) {
	if _, err := decodeGRPC(httpSeeds()[0].encode(noneWithheld)); !errors.Is(err, errDamaged) {
		t.Errorf("gRPC reads HTTP's: %v", err)
	}
	if _, err := decodeHTTP((&grpcAnswer{}).encode(noneWithheld)); !errors.Is(err, errDamaged) {
		t.Errorf("HTTP reads gRPC's: %v", err)
	}
}

// FuzzDecodeHTTP: no bytes make the decoder panic, and what it reads is written
// and read as the same answer.
func FuzzDecodeHTTP(f *testing.F) {
	f.Add([]byte{})
	f.Add(notKept())
	for _, a := range httpSeeds() {
		f.Add(a.encode(noneWithheld))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeHTTP(b)
		if err != nil || a == nil {
			return
		}
		if again, err := decodeHTTP(a.encode(noneWithheld)); err != nil || !reflect.DeepEqual(again, a) {
			t.Errorf("%+v came back as %+v, %v", a, again, err)
		}
	})
}

// FuzzDecodeGRPC is the same for gRPC, with the status and the reply within.
func FuzzDecodeGRPC(f *testing.F) {
	f.Add([]byte{})
	f.Add((&grpcAnswer{kind: "google.protobuf.StringValue", reply: []byte("\n\x01a"), header: map[string][]string{"a-bin": {"\x00"}}}).encode(noneWithheld))
	st, err := deterministic.Marshal(status.New(codes.FailedPrecondition, "no").Proto())
	if err != nil {
		f.Fatal(err)
	}
	f.Add((&grpcAnswer{status: st}).encode(noneWithheld))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeGRPC(b)
		if err != nil || a == nil {
			return
		}
		if again, err := decodeGRPC(a.encode(noneWithheld)); err != nil || !reflect.DeepEqual(again, a) {
			t.Errorf("%+v came back as %+v, %v", a, again, err)
		}
		reply, failed, err := a.decode()
		if err == nil && (reply == nil) == (failed == nil) {
			t.Errorf("an answer is %v and %v", reply, failed)
		}
	})
}
