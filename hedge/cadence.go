package hedge

// A client looks at each service several times in the daemon's cadence, and reports
// one ahead of it where there is something to tell: a busy client's report is a
// second late for nothing, and costs little beside its calls. One that makes few
// calls would send more reports than calls.
const (
	// ReportLooks is how often a client looks in a cadence.
	ReportLooks = 4
	// reportCalls makes reports at most a hundredth of calls: in a fraction of the
	// cadence in which fewer are made there is not enough to move a delay by.
	reportCalls = 100
)

// Reports is whether a look at a service makes a report: each ReportLooks-th does, and
// one that finds so many calls begun since the last.
func Reports(look int, calls uint64) bool {
	return look%ReportLooks == 0 || calls >= reportCalls
}
