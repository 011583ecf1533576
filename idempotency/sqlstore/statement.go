package sqlstore

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Dialect is how a database writes its placeholders and bytes.
type Dialect int

// The dialects that the store knows.
const (
	SQLite     Dialect = iota // ? and BLOB
	PostgreSQL                // $1 and BYTEA
)

// A purge deletes at most purgeMost rows, at every purgeEvery-th reservation.
const (
	purgeEvery = 64
	purgeMost  = 256
)

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// statements are all that the store says to its database.
type statements struct {
	table                                              string
	schema                                             []string
	read, insert, take, extend, finish, release, purge string
}

func newStatements(o Options) (statements, error) {
	if !tableName.MatchString(o.Table) || len(o.Table) > 63 {
		return statements{}, fmt.Errorf("Table is %q, want letters, digits and underscores, with at most one dot, of at most 63 bytes", o.Table)
	}
	var bytes string
	switch o.Dialect {
	case SQLite:
		bytes = "BLOB"
	case PostgreSQL:
		bytes = "BYTEA"
	default:
		return statements{}, fmt.Errorf("Dialect is %d, want SQLite or PostgreSQL", o.Dialect)
	}
	write := func(statement string) string {
		statement = strings.NewReplacer("TABLE_NAME", o.Table, "BYTES", bytes).Replace(statement)
		if o.Dialect == PostgreSQL {
			return numbered(statement)
		}
		return statement
	}
	index := strings.ReplaceAll(o.Table, ".", "_") + "_expires"
	return statements{
		table: o.Table,
		schema: []string{
			write(`CREATE TABLE IF NOT EXISTS TABLE_NAME (
	id CHAR(64) NOT NULL PRIMARY KEY,
	fingerprint CHAR(64) NOT NULL,
	owner CHAR(32) NOT NULL,
	running SMALLINT NOT NULL,
	lease_ms BIGINT NOT NULL,
	expires_ms BIGINT NOT NULL,
	answer BYTES
)`),
			write(`CREATE INDEX IF NOT EXISTS ` + index + ` ON TABLE_NAME (expires_ms)`),
		},
		read: write(`SELECT fingerprint, owner, running, lease_ms, expires_ms, answer FROM TABLE_NAME WHERE id = ?`),
		// The primary key decides between copies that come at once.
		insert: write(`INSERT INTO TABLE_NAME (id, fingerprint, owner, running, lease_ms, expires_ms)
VALUES (?, ?, ?, 1, ?, ?) ON CONFLICT (id) DO NOTHING`),
		// Only from the state that was read: whoever extended, ended or took the
		// row over since has changed the lease or the owner.
		take: write(`UPDATE TABLE_NAME SET fingerprint = ?, owner = ?, running = 1, lease_ms = ?, expires_ms = ?, answer = NULL
WHERE id = ? AND owner = ? AND lease_ms = ?`),
		extend: write(`UPDATE TABLE_NAME SET lease_ms = ?, expires_ms = CASE WHEN expires_ms < ? THEN ? ELSE expires_ms END
WHERE id = ? AND owner = ? AND running = 1`),
		finish: write(`UPDATE TABLE_NAME SET running = 0, lease_ms = 0, answer = ?, expires_ms = ?
WHERE id = ? AND owner = ? AND running = 1`),
		release: write(`DELETE FROM TABLE_NAME WHERE id = ? AND owner = ? AND running = 1`),
		// The outer condition again: a row may have been taken over since.
		purge: write(`DELETE FROM TABLE_NAME WHERE expires_ms <= ? AND id IN
(SELECT id FROM TABLE_NAME WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ` + strconv.Itoa(purgeMost) + `)`),
	}, nil
}

// numbered writes the placeholders as $1, $2, ... None of the statements has a
// question mark for anything else.
func numbered(statement string) string {
	var b strings.Builder
	n := 0
	for _, c := range statement {
		if c == '?' {
			n++
			fmt.Fprintf(&b, "$%d", n)
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}
