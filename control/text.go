package control

import (
	"strconv"
	"strings"
	"time"
)

// commas writes 12400 as "12,400".
func commas(n uint64) string {
	s := strconv.FormatUint(n, 10)
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// number writes v with at most three significant digits: "4.1", "95.7", "5".
func number(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }

// percent writes .041 as "4.1%".
func percent(v float64) string { return number(100*v) + "%" }

// millis writes 14.8 ms as "14.8 ms"; it is the unit in which operators compare.
func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if ms >= 100 {
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	}
	return number(ms) + " ms"
}
