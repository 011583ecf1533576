package demo

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/client"
	"github.com/hedged-project/hedged/daemon"
	"github.com/hedged-project/hedged/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startTestDaemon runs a daemon in this process and returns what the
// demonstration knows of it.
func startTestDaemon(t *testing.T) *daemonProcess {
	t.Helper()
	cfg := daemon.DefaultConfig()
	cfg.GRPCAddr, cfg.HTTPAddr, cfg.StateDir = "127.0.0.1:0", "127.0.0.1:0", t.TempDir()
	cfg.Logger = slog.New(slog.DiscardHandler)
	served, err := daemon.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- served.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	d := &daemonProcess{}
	d.ready.GRPC = served.GRPCAddr()
	if d.conn, err = grpc.NewClient(d.ready.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.conn.Close() })
	d.admin = hedgedv1.NewAdminServiceClient(d.conn)
	return d
}

// The demonstration's clients learn over the daemon's sockets and in no other way:
// in one process with a client that hedges, one whose port is blocked does not.
func TestBlockedClientsDoNotHedge(t *testing.T) {
	d := startTestDaemon(t)
	if err := d.set(t.Context(), "users", hedgedv1.Mode_MODE_ACTIVE, 0.05); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // it never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := startFleet(d.ready.GRPC, "users", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	free, err := f.subscribe(t.Context(), d.ready.GRPC, "free")
	if err != nil {
		t.Fatal(err)
	}
	defer free.close()
	going := begin(t.Context(), load{conn: free.conn, inFlight: 8})
	defer going.end()
	if err := free.await(t.Context(), func(st client.ServiceStats) bool { return st.Mode == policy.ModeActive && st.Hedges > 0 }); err != nil {
		t.Fatal(err)
	}

	blocked, err := f.subscribe(t.Context(), l.Addr().String(), "blocked")
	if err != nil {
		t.Fatal(err)
	}
	defer blocked.close()
	out := load{conn: blocked.conn, inFlight: 8, calls: 800}.run(t.Context())
	if st := blocked.stats(); st.Hedges != 0 || !st.Generation.IsZero() || len(blocked.moves.list()) != 0 {
		t.Errorf("blocked, and yet %d hedges by policy %v, delays %v", st.Hedges, st.Generation, blocked.moves.list())
	}
	if out.errors != 0 || out.calls() != 800 {
		t.Errorf("%d of %d calls failed", out.errors, out.calls())
	}
	if free := going.end(); free.errors != 0 {
		t.Errorf("of the other client's calls %d failed", free.errors)
	}
}
