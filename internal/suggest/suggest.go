// Package suggest finds what somebody meant who mistyped a name.
package suggest

import "strings"

// For returns `; did you mean "x"?` where one of names is close to what was
// written, and else which names there are.
func For(written string, names []string) string {
	best, least := "", 3
	for _, n := range names {
		if d := distance(written, n); d < least && 2*d <= len(n) {
			best, least = n, d
		}
	}
	if best != "" {
		return "; did you mean \"" + best + "\"?"
	}
	return ", want " + List(names)
}

// distance is how many letters must be put in, taken out, replaced or swapped
// with their neighbour to make b of a.
func distance(a, b string) int {
	if len(a) > len(b)+2 {
		return len(a)
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	next := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}

// List returns "a, b or c".
func List(options []string) string {
	if len(options) == 1 {
		return options[0]
	}
	return strings.Join(options[:len(options)-1], ", ") + " or " + options[len(options)-1]
}
