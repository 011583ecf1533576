package bolt_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/hedged-project/hedged/storage"
	"github.com/hedged-project/hedged/storage/bolt"
	"github.com/hedged-project/hedged/storage/storagetest"
)

func TestMain(m *testing.M) {
	if runWriter() { // this process is a child of a test
		return
	}
	goleak.VerifyTestMain(m)
}

func TestStore(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, func(t *testing.T, place string) storage.Store {
		return open(t, filepath.Join(place, "store.db"))
	})
}

// open opens a store and closes it at the end of the test, if it is open then.
func open(t *testing.T, path string) *bolt.Store {
	t.Helper()
	s, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
