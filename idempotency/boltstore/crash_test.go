package boltstore

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/hedged-project/hedged/idempotency"
)

// The crash tests run this binary again as the server that is killed: these say
// where and when.
const (
	crashPath  = "BOLTSTORE_CRASH_PATH"
	crashPoint = "BOLTSTORE_CRASH_POINT"
)

func TestMain(m *testing.M) {
	if os.Getenv(crashPath) != "" {
		serveAndHang(os.Getenv(crashPath), os.Getenv(crashPoint))
	}
	goleak.VerifyTestMain(m)
}

// crashLease is short: the survivor waits for its end in real time.
const crashLease = 300 * time.Millisecond

// saveHandler saves a user, in the transaction of the key or beside it, and calls
// saved between the effect and its record.
func saveHandler(db *bbolt.DB, s *Store, beside bool, saved func()) (http.Handler, error) {
	g, err := idempotency.New(s, idempotency.Options{Lease: crashLease, Wait: -1})
	if err != nil {
		return nil, err
	}
	return g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		put := func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(users)
			if err != nil {
				return err
			}
			n, err := b.NextSequence()
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "user %d", n)
			return b.Put(fmt.Append(nil, n), nil)
		}
		var err error
		if beside {
			err = db.Update(put)
		} else {
			var tx *bbolt.Tx
			if tx, err = Tx(r.Context()); err == nil {
				err = put(tx)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		saved()
	})), nil
}

func post(h http.Handler) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/users", nil)
	r.Header.Set(idempotency.Header, "k")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// serveAndHang serves one call and says "killable" at the point, where it stays.
func serveAndHang(path, point string) {
	hang := func() {
		fmt.Println("killable")
		time.Sleep(time.Hour)
	}
	db, err := bbolt.Open(path, 0o600, nil) // synced, as in life
	if err != nil {
		panic(err)
	}
	s, err := New(db, "idempotency")
	if err != nil {
		panic(err)
	}
	saved := func() {}
	if point != "answered" {
		saved = hang
	}
	h, err := saveHandler(db, s, point == "beside", saved)
	if err != nil {
		panic(err)
	}
	if w := post(h); w.Code != http.StatusOK {
		panic(w.Body.String())
	}
	hang()
}

// crash runs the server on a new file until the point, kills it, and returns the
// file's path.
func crash(t *testing.T, point string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data.db")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), crashPath+"="+path, crashPoint+"="+point)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if killed := cmd.Process.Kill(); killed != nil { // SIGKILL
		t.Error(killed)
	}
	cmd.Wait()
	if err != nil || line != "killable\n" {
		t.Fatalf("the server said %q, %v", line, err)
	}
	return path
}

// A server that is killed between an effect and its record: after its lease the
// next copy runs. In one transaction the effect happened once; beside it, twice,
// as the package says.
func TestKilledBetweenEffectAndRecord(t *testing.T) {
	tests := []struct {
		point string
		users int
	}{
		{"within", 1},
		{"beside", 2},
	}
	for _, test := range tests {
		t.Run(test.point, func(t *testing.T) {
			t.Parallel()
			path := crash(t, test.point)
			db, s := open(t, path)
			if n := count(t, db); n != test.users-1 {
				t.Errorf("%d users after the crash, want %d", n, test.users-1)
			}
			h, err := saveHandler(db, s, test.point == "beside", func() {})
			if err != nil {
				t.Fatal(err)
			}
			w := post(h)
			for ; w.Code == http.StatusConflict; w = post(h) {
				time.Sleep(crashLease / 20) // the lease is another process's: real time
			}
			if want := fmt.Sprintf("user %d", test.users); w.Code != http.StatusOK || w.Body.String() != want {
				t.Errorf("the next copy got %d %q, want %q", w.Code, w.Body, want)
			}
			if n := count(t, db); n != test.users {
				t.Errorf("%d users, want %d", n, test.users)
			}
		})
	}
}

// A server that is killed right after the answer: the answer is kept.
func TestKilledAfterTheAnswer(t *testing.T) {
	t.Parallel()
	db, s := open(t, crash(t, "answered"))
	h, err := saveHandler(db, s, false, func() { t.Error("the handler ran again") })
	if err != nil {
		t.Fatal(err)
	}
	if w := post(h); w.Body.String() != "user 1" || w.Header().Get(idempotency.Replayed) != "true" {
		t.Errorf("the copy got %d %q, want user 1 again", w.Code, w.Body)
	}
	if n := count(t, db); n != 1 {
		t.Errorf("%d users, want 1", n)
	}
}
