package sqlitetest

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/hedged-project/hedged/idempotency"
	"github.com/hedged-project/hedged/idempotency/sqlstore"
)

// saveUser inserts the user whose address is the request's body: in the
// transaction of the key, if the request has one.
func saveUser(db *sql.DB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		email, _ := io.ReadAll(r.Body)
		insert := db.ExecContext
		if tx, err := sqlstore.Tx(r.Context()); err == nil {
			insert = tx.ExecContext
		}
		result, err := insert(r.Context(), "INSERT INTO users (email) VALUES (?)", string(email))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		id, _ := result.LastInsertId()
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "user %d", id)
	}
}

// The same "save user" call is sent twice: with a plain insert there are two
// users. With a key there is one, the second copy gets the first one's answer,
// and other data under the same key is a validation error.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", dsn(filepath.Join(dir, "users.db")))
	if err != nil {
		panic(err)
	}
	defer db.Close()
	ctx := context.Background()
	if _, err := db.ExecContext(ctx, "CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT)"); err != nil {
		panic(err)
	}
	store, err := sqlstore.New(db, sqlstore.Options{})
	if err != nil {
		panic(err)
	}
	if err := store.CreateTable(ctx); err != nil {
		panic(err)
	}
	guard, err := idempotency.New(store, idempotency.Options{})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(guard.Handler(saveUser(db)))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: idempotency.NewTransport(transport, nil)}

	save := func(ctx context.Context, email string) string {
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/users", strings.NewReader(email))
		resp, err := client.Do(r)
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusCreated {
			body = bytes.TrimSpace([]byte(resp.Status))
		}
		return string(body)
	}
	users := func(email string) (n int) {
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM users WHERE email = ?", email).Scan(&n); err != nil {
			panic(err)
		}
		return n
	}

	fmt.Printf("plain insert: %q, then %q\n", save(ctx, "ann@example.com"), save(ctx, "ann@example.com"))
	fmt.Println("sent twice, users:", users("ann@example.com"))

	keyed := idempotency.WithKey(ctx, idempotency.NewKey())
	fmt.Printf("with a key: %q, then %q\n", save(keyed, "bob@example.com"), save(keyed, "bob@example.com"))
	fmt.Println("sent twice, users:", users("bob@example.com"))

	fmt.Println("other data, same key:", save(keyed, "eve@example.com"))
	fmt.Println("users:", users("eve@example.com"))

	// Output:
	// plain insert: "user 1", then "user 2"
	// sent twice, users: 2
	// with a key: "user 3", then "user 3"
	// sent twice, users: 1
	// other data, same key: 422 Unprocessable Entity
	// users: 0
}
