package hedged

import (
	"syscall"
	"time"
	"unsafe"
)

// monotonic reads CLOCK_MONOTONIC, by which systemd tells the answer to one reload
// from that to another. The package time has the clock but does not show it.
func monotonic() time.Duration {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0 // it has no way to fail
	}
	return time.Duration(ts.Nano())
}
