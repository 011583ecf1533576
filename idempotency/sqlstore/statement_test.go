package sqlstore

import (
	"regexp"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	tests := []struct {
		o    Options
		want string
	}{
		{Options{}, ""},
		{Options{Table: "app.Keys_2", Dialect: PostgreSQL}, ""},
		{Options{Table: "keys; DROP TABLE users"}, `Table is "keys; DROP TABLE users", want`},
		{Options{Table: "a.b.c"}, `Table is "a.b.c", want`},
		{Options{Table: "2keys"}, `Table is "2keys", want`},
		{Options{Table: strings.Repeat("a", 64)}, "of at most 63 bytes"},
		{Options{Dialect: 7}, "Dialect is 7, want"},
	}
	for _, test := range tests {
		_, err := New(nil, test.o)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("New(%+v) = %v, want %q", test.o, err, test.want)
		}
	}
}

// The statements for PostgreSQL are those for SQLite, which run in the module
// idempotency/sqlitetest, but for placeholders and the type of bytes.
func TestDialects(t *testing.T) {
	lite, err := newStatements(Options{Table: "k", Dialect: SQLite})
	if err != nil {
		t.Fatal(err)
	}
	postgres, err := newStatements(Options{Table: "k", Dialect: PostgreSQL})
	if err != nil {
		t.Fatal(err)
	}
	placeholder := regexp.MustCompile(`\$[0-9]+`)
	for i, statement := range append(postgres.schema, postgres.read, postgres.insert, postgres.take,
		postgres.extend, postgres.finish, postgres.release, postgres.purge) {
		want := append(lite.schema, lite.read, lite.insert, lite.take, lite.extend, lite.finish, lite.release, lite.purge)[i]
		got := strings.ReplaceAll(placeholder.ReplaceAllString(statement, "?"), "BYTEA", "BLOB")
		if got != want || strings.Contains(statement, "?") {
			t.Errorf("PostgreSQL has\n%s\nSQLite\n%s", statement, want)
		}
	}
	if want := "answer = $1, expires_ms = $2"; !strings.Contains(postgres.finish, want) {
		t.Errorf("%q has no %q", postgres.finish, want)
	}
}
