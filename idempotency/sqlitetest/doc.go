// Package sqlitetest tests sqlstore on a real SQLite. It is a module of its own,
// so that the driver is no dependency of anyone who imports idempotency.
//
// Read example_test.go first: a user saved twice, with a key and without.
package sqlitetest
