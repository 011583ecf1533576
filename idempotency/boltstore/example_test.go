package boltstore_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/hedged-project/hedged/idempotency"
	"github.com/hedged-project/hedged/idempotency/boltstore"
)

// The handler writes in the transaction that keeps its answer: after a crash
// there are both or neither.
func ExampleTx() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := bbolt.Open(filepath.Join(dir, "orders.db"), 0o600, nil)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	store, err := boltstore.New(db, "idempotency")
	if err != nil {
		panic(err)
	}
	guard, err := idempotency.New(store, idempotency.Options{})
	if err != nil {
		panic(err)
	}

	save := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, err := boltstore.Tx(r.Context())
		if err != nil { // a request without a key
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		orders, err := tx.CreateBucketIfNotExists([]byte("orders"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		number, err := orders.NextSequence()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "order %d", number)
	}))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/orders", nil)
		r.Header.Set(idempotency.Header, `"8e03978e-40d5-43e8-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		save.ServeHTTP(w, r)
		fmt.Println(w.Body)
	}
	// Output:
	// order 1
	// order 1
}
