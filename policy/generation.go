package policy

import (
	"cmp"
	"fmt"
)

// Generation orders the policies of one service. Epoch is the identity of the
// store that numbered it (Unix milliseconds at its creation); Number grows by
// at least one with every change of content in that epoch. The zero Generation
// means "no policy".
type Generation struct {
	Epoch  uint64
	Number uint64
}

// Compare orders by epoch, then by number. A client acknowledges and ignores a
// policy whose generation is less than the one it holds.
func (g Generation) Compare(o Generation) int {
	return cmp.Or(cmp.Compare(g.Epoch, o.Epoch), cmp.Compare(g.Number, o.Number))
}

// IsZero reports whether g is the generation of no policy.
func (g Generation) IsZero() bool { return g == Generation{} }

// String returns "epoch.number".
func (g Generation) String() string { return fmt.Sprintf("%d.%d", g.Epoch, g.Number) }
