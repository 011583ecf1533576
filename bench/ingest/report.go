package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/bench/internal/child"
	"github.com/hedged-project/hedged/estimator"
)

const (
	services     = 100
	replicas     = 12
	samples      = 100
	callsInFrame = replicas * samples * 2
)

// raw is a request that is marshalled already. The daemon's clients share two
// cores with it, so they do as little as possible.
type raw []byte

type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// body is the request of a service's frame, but for its sequence.
func body(service int) []byte {
	rng := rand.New(rand.NewPCG(uint64(service), 1))
	histogram := func(median time.Duration) []byte {
		var h estimator.Histogram
		for range samples {
			h.Record(time.Duration(float64(median) * (.5 + rng.ExpFloat64())))
		}
		b, err := h.AppendBinary(nil)
		if err != nil {
			log.Fatal(err)
		}
		return b
	}
	m := &hedgedv1.MethodReport{Calls: callsInFrame, Safe: callsInFrame, Eligible: 100, Hedges: 50, Wins: 20, Replicas: map[string]*hedgedv1.ReplicaReport{}}
	for i := range replicas {
		m.Replicas[fmt.Sprintf("10.0.%d.%d:8080", service, i)] = &hedgedv1.ReplicaReport{
			PrimaryCompleted: histogram(10 * time.Millisecond),
			PrimaryCensored:  histogram(15 * time.Millisecond),
			HedgeCompleted:   histogram(10 * time.Millisecond),
		}
	}
	b, err := pb.Marshal(&hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Frame{Frame: &hedgedv1.Frame{
		Service: fmt.Sprintf("default/service-%03d", service), Interval: durationpb.New(time.Second),
		Methods: map[string]*hedgedv1.MethodReport{"/shop.Orders/Get": m},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	return b
}

// request adds the sequence: two values of one message field are merged.
func request(body []byte, seq uint64) raw {
	inner := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), seq)
	b := append(make([]byte, 0, len(body)+16), body...)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	return protowire.AppendBytes(b, inner)
}

// source is one reporter.
type source struct {
	addr string
	id   *hedgedv1.Source
	body []byte
	conn *grpc.ClientConn
	seq  uint64

	acknowledged atomic.Uint64
}

// report is the clients' process.
func report(addr string, streams int) {
	bodies := make([][]byte, services)
	for i := range bodies {
		bodies[i] = body(i)
	}
	stop := make(chan struct{})
	var ended, connected sync.WaitGroup
	dial := make(chan struct{}, 64)
	sources := make([]*source, streams)
	for i := range sources {
		s := &source{addr: addr, body: bodies[i%services], id: &hedgedv1.Source{
			Id: fmt.Sprintf("client-%05d", i), Incarnation: 1, Kind: hedgedv1.SourceKind_SOURCE_KIND_CLIENT,
			FramesPerAnswer: 4, // as our client library asks
		}}
		sources[i] = s
		connected.Add(1)
		ended.Go(func() { s.run(stop, dial, connected.Done) })
	}
	connected.Wait()
	time.Sleep(3 * time.Second)
	child.Say("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() { // the one question: send again
		close(stop)
		ended.Wait()
		var sent int64
		for _, s := range sources {
			dial <- struct{}{}
			ended.Go(func() { s.again(); <-dial })
			sent += int64(s.seq)
		}
		ended.Wait()
		child.Say(sent)
	}
}

func (s *source) open() grpc.BidiStreamingClient[hedgedv1.ReportRequest, hedgedv1.ReportResponse] {
	stream, err := hedgedv1.NewReportServiceClient(s.conn).Report(context.Background(), grpc.ForceCodecV2(codec{encoding.GetCodecV2(proto.Name)}))
	if err != nil {
		log.Fatal(err)
	}
	if err := stream.Send(&hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Source{Source: s.id}}); err != nil {
		log.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		log.Fatal(err)
	}
	return stream
}

// run reports once a second until stop, and then waits until all is acknowledged.
func (s *source) run(stop <-chan struct{}, dial chan struct{}, connected func()) {
	dial <- struct{}{}
	conn, err := grpc.NewClient("passthrough:///"+s.addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(), grpc.WithReadBufferSize(4<<10))
	if err != nil {
		log.Fatal(err)
	}
	s.conn = conn
	stream := s.open()
	<-dial
	connected()
	caughtUp := make(chan struct{}, 1)
	go func() {
		for {
			a, err := stream.Recv()
			if err != nil {
				return
			}
			s.acknowledged.Store(a.Acknowledged)
			select {
			case caughtUp <- struct{}{}:
			default:
			}
		}
	}()
	next := time.Now().Add(rand.N(time.Second))
	for {
		select {
		case <-time.After(time.Until(next)):
		case <-stop:
			if err := stream.CloseSend(); err != nil { // has the rest acknowledged
				log.Fatal(err)
			}
			for s.acknowledged.Load() < s.seq {
				<-caughtUp
			}
			return
		}
		next = next.Add(time.Second)
		s.seq++
		if err := stream.SendMsg(request(s.body, s.seq)); err != nil {
			log.Fatal(err)
		}
	}
}

// again sends the last frame on another stream.
func (s *source) again() {
	stream := s.open()
	if err := stream.SendMsg(request(s.body, s.seq)); err != nil {
		log.Fatal(err)
	}
	if a, err := stream.Recv(); err != nil || a.Acknowledged != s.seq {
		log.Fatalf("sent %d again, answered %v, %v", s.seq, a, err)
	}
	_ = stream.CloseSend()
}
