package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/daemon/state"
	"github.com/hedged-project/hedged/internal/wire"
)

// A second daemon on the same state file ends with an error that names the file;
// the first one goes on.
func TestSecondDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := startDaemon(t, dir)
	begun := time.Now()
	got := run(t, "hedged", "--state-dir", dir, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0")
	took := time.Since(begun)
	if got.code != 1 || got.stdout != "" || !strings.Contains(got.stderr, filepath.Join(dir, state.StoreFile)) || !strings.Contains(got.stderr, "--state-dir") {
		t.Errorf("a second daemon: %+v", got)
	}
	t.Logf("the second daemon gave up after %v: %s", took.Round(time.Millisecond), strings.TrimSpace(got.stderr))
	if took > 10*time.Second {
		t.Errorf("the second daemon gave up after %v, want about a second", took)
	}
	if body, err := d.get("/readyz"); err != nil {
		t.Errorf("the first daemon: %q, %v", body, err)
	}
}

// set gives an operator's word.
func (p *process) set(t *testing.T, service string, mode hedgedv1.Mode, target float64) {
	t.Helper()
	o := &hedgedv1.Override{Mode: mode}
	if target != 0 {
		o.Target = &target
	}
	r, err := p.admin.SetOverride(t.Context(), &hedgedv1.SetOverrideRequest{
		Scope: &hedgedv1.SetOverrideRequest_Service{Service: service}, Override: o,
	})
	if err != nil || !r.GetDurable() {
		t.Fatalf("override of %s: %v, %v", service, r, err)
	}
}

// status is what the daemon says of a service.
func (p *process) status(t *testing.T, service string) *hedgedv1.ServiceStatus {
	t.Helper()
	r, err := p.admin.ListServices(t.Context(), &hedgedv1.ListServicesRequest{Service: service}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return r.GetServices()[0]
}

// A state file that is cut, overwritten or empty: the daemon serves all the same,
// numbers from a new epoch, and knows the operators' words from their second copy.
// What was damaged is set aside, under a name that is logged.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)/3] },
		"garbage": func(b []byte) []byte { return bytes.Repeat([]byte("not a store "), len(b)/12) },
		"zeroed":  func(b []byte) []byte { return make([]byte, len(b)) },
		"empty":   func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := startDaemon(t, dir)
			d.set(t, "users", hedgedv1.Mode_MODE_OFF, 0)
			d.set(t, "orders", hedgedv1.Mode_MODE_ACTIVE, 0.03)
			before := d.status(t, "users").GetPolicy().GetGeneration()
			if _, err := d.terminate(); err != nil {
				t.Fatalf("SIGTERM: %v\n%s", err, d.log)
			}
			path := filepath.Join(dir, state.StoreFile)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			damaged := damage(whole)
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}

			d = startDaemon(t, dir)
			d.set(t, "third", hedgedv1.Mode_MODE_SHADOW, 0) // it can save
			if after := d.status(t, "third").GetPolicy().GetGeneration(); after.GetEpoch() <= before.GetEpoch() {
				t.Errorf("generation %v, want a later epoch than that of %v", after, before)
			}
			if st, err := d.admin.GetStatus(t.Context(), &hedgedv1.GetStatusRequest{}); err != nil || st.GetStorageError() != "" {
				t.Errorf("status: %v, %v", st, err)
			}
			f := startFleet(t, "users")
			c := f.call(t, d.ready.GRPC, "client")
			await(t, "the client has a policy", func() bool { return !c.stats().Generation.IsZero() })
			o := f.service
			if s := d.status(t, o); s.GetPolicy().GetMode() != hedgedv1.Mode_MODE_OFF || s.GetOverride().GetMode() != hedgedv1.Mode_MODE_OFF {
				t.Errorf("users is %v by %v, want off by the operator's word", s.GetPolicy().GetMode(), s.GetOverride())
			}

			aside, err := filepath.Glob(path + ".*damaged*")
			if err != nil {
				t.Fatal(err)
			}
			if len(aside) != 1 || len(d.log.lines(filepath.Base(aside[0]))) == 0 {
				t.Fatalf("set aside: %q, want one file that the log names:\n%s", aside, d.log)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(kept, damaged) {
				t.Errorf("%s is not what was damaged: %v", aside[0], err)
			}
		})
	}
}

// SIGTERM with open streams of every kind: each ends by itself, with a status that
// clients retry, long before the limit at which the daemon would give up.
func TestShutdownWithOpenStreams(t *testing.T) {
	t.Parallel()
	const each = 50
	d := startDaemon(t, t.TempDir(), "--shutdown-timeout", "2m")
	d.set(t, "users", hedgedv1.Mode_MODE_ACTIVE, 0)
	conn, err := grpc.NewClient(d.ready.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ends := make(chan error, 3*each)
	for i := range each {
		watch, err := d.admin.WatchServices(t.Context(), &hedgedv1.WatchServicesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		go follow(watch, ends)

		reports, err := hedgedv1.NewReportServiceClient(conn).Report(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		source := &hedgedv1.Source{Id: fmt.Sprintf("client-%d", i), Incarnation: 1, Kind: hedgedv1.SourceKind_SOURCE_KIND_CLIENT}
		if err := reports.Send(&hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Source{Source: source}}); err != nil {
			t.Fatal(err)
		}
		if _, err := reports.Recv(); err != nil { // the cadence
			t.Fatal(err)
		}
		go follow(reports, ends)

		policies, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ask := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: wire.ServicePolicyType, ResourceNamesSubscribe: []string{"default/users"}}
		if err := policies.Send(ask); err != nil {
			t.Fatal(err)
		}
		if r, err := policies.Recv(); err != nil || len(r.GetResources()) != 1 {
			t.Fatalf("%v, %v", r, err)
		}
		go follow(policies, ends)
	}
	f := startFleet(t, "users")
	c := f.call(t, d.ready.GRPC, "real") // and one that comes back again and again
	await(t, "the client has a policy", func() bool { return !c.stats().Generation.IsZero() })

	took, err := d.terminate()
	if err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, d.log)
	}
	t.Logf("ended %v after SIGTERM", took.Round(time.Millisecond))
	for range 3 * each {
		select {
		case err := <-ends:
			if status.Code(err) != codes.Unavailable {
				t.Errorf("a stream ended with %v, want Unavailable", err)
			}
		case <-time.After(patience):
			t.Fatal("a stream has not ended")
		}
	}
	await(t, "the client keeps its policy", func() bool { return !c.stats().Generation.IsZero() })
}

// follow receives until the stream ends, and tells how it ended.
func follow[M any](stream grpc.ServerStreamingClient[M], ends chan<- error) {
	for {
		if _, err := stream.Recv(); err != nil {
			ends <- err
			return
		}
	}
}
