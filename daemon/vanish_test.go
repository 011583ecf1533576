package daemon

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
)

// cutConn is a connection that a network can stop carrying: then nothing arrives
// at either end, and neither is told.
type cutConn struct {
	net.Conn
	cut  chan struct{} // closed: cut
	once sync.Once
	done chan struct{} // closed with the connection
}

func (c *cutConn) isCut() bool {
	select {
	case <-c.cut:
		return true
	default:
		return false
	}
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.isCut() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.isCut() {
		<-c.done
		return 0, net.ErrClosed
	}
	return n, err
}

// Close does not tell the other end, once cut.
func (c *cutConn) Close() error {
	c.once.Do(func() { close(c.done) })
	if c.isCut() {
		return nil
	}
	return c.Conn.Close()
}

// Clients that vanish without a word, and those that say nothing any more but live,
// are told from each other by keepalive: the former are reclaimed within 40 s.
func TestVanishedClientsAreReclaimed(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		quiet := w.subscribe("quiet", orders.String(), "")
		defer quiet.close()
		cut := make(chan struct{})
		conn, err := grpc.NewClient("passthrough:///hedged", append(w.dialOptions(),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				c, err := w.listener.DialContext(ctx)
				return &cutConn{Conn: c, cut: cut, done: make(chan struct{})}, err
			}))...)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		gone := &world{t: w.t, conn: conn}
		const streams = 500
		for i := range streams {
			gone.subscribe(fmt.Sprint("vanished-", i), orders.String(), "")
			gone.report(clientSource(fmt.Sprint("vanished-", i)))
		}
		synctest.Wait()
		m := w.metrics()
		m.want("hedged_policy_streams", `kind="delta"`, streams+1)
		m.want("hedged_report_streams", "", streams)
		close(cut)
		time.Sleep(41 * time.Second)
		synctest.Wait()
		m = w.metrics()
		m.want("hedged_policy_streams", `kind="delta"`, 1)
		m.want("hedged_report_streams", "", 0)
	})
}

// Our client and our daemon, as shipped, idle together for ten minutes: one
// connection, one stream of each kind, no ping that either finds too many.
func TestIdleClientKeepsItsStreams(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		a := w.app("client-1")
		defer a.close()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		m := w.metrics()
		m.want("hedged_policy_streams_opened_total", "", 1)
		m.want("hedged_policy_streams", `kind="delta"`, 1)
		m.want("hedged_report_streams", "", 1)
		if c := w.client("client-1"); !c.Streaming || c.ReportAge.AsDuration() > 2*time.Minute {
			t.Errorf("after ten idle minutes: %v", c)
		}
	})
}
