package idempotency

import (
	"context"
	"strings"
	"testing"
)

func TestValidateKey(t *testing.T) {
	tests := []struct{ key, want string }{
		{"a", ""},
		{strings.Repeat("~", 255), ""},
		{"!\"\\~", ""},
		{"", "is 0 bytes long, want 1 to 255"},
		{strings.Repeat("a", 256), "is 256 bytes long, want 1 to 255"},
		{"a b", "has byte 0x20 at 1, want printable ASCII"},
		{"ab\x7f", "has byte 0x7f at 2, want"},
		{"\x1f", "has byte 0x1f at 0, want"},
		{"ä", "has byte 0xc3 at 0, want"},
	}
	for _, test := range tests {
		err := ValidateKey(test.key)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("ValidateKey(%q) = %v, want %q", test.key, err, test.want)
		}
	}
}

func TestHeaderForms(t *testing.T) {
	tests := []struct{ value, key, want string }{
		{`"8e03978e"`, "8e03978e", ""},
		{`8e03978e`, "8e03978e", ""},
		{`"a\"b\\c"`, `a"b\c`, ""},
		{`a"b`, `a"b`, ""},
		{`"`, "", "double quotes"},
		{`"a`, "", "double quotes"},
		{`"a" `, "", "double quotes"},
		{`"a"; p=1`, "", "double quotes"},
		{`"a\b"`, "", "double quotes"},
		{`"a\`, "", "double quotes"},
		{`""`, "", "is 0 bytes long"},
		{`"a b"`, "", "byte 0x20 at 1"},
		{`"` + strings.Repeat("a", 256) + `"`, "", "is 256 bytes long"},
		{strings.Repeat("a", 1000), "", "is 1000 bytes long, want at most 512"},
	}
	for _, test := range tests {
		key, err := parseHeader(test.value)
		switch {
		case test.want != "":
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("parseHeader(%q) = %q, %v, want an error with %q", test.value, key, err, test.want)
			}
		case err != nil || key != test.key:
			t.Errorf("parseHeader(%q) = %q, %v, want %q", test.value, key, err, test.key)
		}
	}
}

func TestNewKey(t *testing.T) {
	a, b := NewKey(), NewKey()
	if len(a) != 32 || ValidateKey(a) != nil || a == b {
		t.Errorf("NewKey gave %q and %q", a, b)
	}
}

func TestKeyOfContext(t *testing.T) {
	if key, ok := KeyFromContext(context.Background()); ok {
		t.Errorf("a bare context has key %q", key)
	}
	if key, ok := KeyFromContext(WithKey(context.Background(), "k")); !ok || key != "k" {
		t.Errorf("KeyFromContext = %q, %v, want k", key, ok)
	}
}

// Parts that only join to the same bytes are different: caller "a" with key "bc"
// is not caller "ab" with key "c".
func TestHashesSeparateTheirParts(t *testing.T) {
	if newID("a", "bc") == newID("ab", "c") {
		t.Error("two callers share a key")
	}
	if newFingerprint([]byte("/a"), []byte("b")) == newFingerprint([]byte("/"), []byte("ab")) {
		t.Error("two requests share a fingerprint")
	}
}

// FuzzKey: a header that is read is a valid key, and what is written for that is
// read as the same key.
func FuzzKey(f *testing.F) {
	for _, seed := range []string{"", `"`, `""`, "a", `"a"`, `"a\"b"`, `"a\\"`, `"a\`, "ä", strings.Repeat("x", 600)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := parseHeader(value)
		if err != nil {
			return
		}
		if err := ValidateKey(key); err != nil {
			t.Fatalf("%q was read as %q: %v", value, key, err)
		}
		if again, err := parseHeader(formatHeader(key)); err != nil || again != key {
			t.Fatalf("%q is written %q and read as %q, %v", key, formatHeader(key), again, err)
		}
	})
}
