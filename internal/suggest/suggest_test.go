package suggest

import "testing"

func TestFor(t *testing.T) {
	names := []string{"target", "mode", "min_delay"}
	for _, c := range []struct{ written, want string }{
		{"tagret", `; did you mean "target"?`},
		{"min-delay", `; did you mean "min_delay"?`},
		{"Mode", `; did you mean "mode"?`},
		{"colour", ", want target, mode or min_delay"},
		{"", ", want target, mode or min_delay"},
	} {
		if got := For(c.written, names); got != c.want {
			t.Errorf("For(%q) = %q, want %q", c.written, got, c.want)
		}
	}
}
