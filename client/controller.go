package client

import (
	"context"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// Controller decides for a Client: it takes what was measured and gives
// policies. The daemon is one, reached by Options.Daemon; a law inside the same
// process is another. All methods may be called from any goroutine, and none
// but Run and Flush may block: they are called while calls wait.
type Controller interface {
	// Run serves l until ctx ends, and returns when everything that it started
	// has ended. It is called once, before or after the first of the others.
	Run(ctx context.Context, l Listener)

	// Subscribe asks for the policies of one more service.
	Subscribe(service policy.Key)

	// Report takes over the report, and keeps it until it is delivered or newer
	// ones need its place. It returns how many observations were given up for
	// that, of this report or older ones: the next report carries the number.
	// The reports of one source come in the order of their sequence.
	Report(r *report.Report) (dropped uint64)

	// Flush waits until every report was delivered, or until ctx ends.
	Flush(ctx context.Context) error
}

// Listener is what a Controller tells a Client. Its methods may be called from
// any goroutine, but not from within a call of the Controller.
type Listener interface {
	// Apply brings a policy into force, unless one as new is held already: that
	// is no error. An error says which field is out of bounds; the last good
	// policy then stays in force. The policy must not be written to again.
	// Policies of one service must be applied one at a time.
	Apply(p *policy.Policy) error

	// Heard says that a message came from the controller: policies live on.
	Heard()

	// Refused says that a delivered report was out of bounds and was not used.
	// reason names field, value and bound.
	Refused(reason string)

	// SetCadence sets the time between reports; out of bounds, it is clamped.
	SetCadence(d time.Duration)
}
