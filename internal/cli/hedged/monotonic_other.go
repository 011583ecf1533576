//go:build !linux

package hedged

import "time"

// monotonic is for systemd, which is on Linux only.
func monotonic() time.Duration { return 0 }
