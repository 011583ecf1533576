package sim

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/hedged-project/hedged/internal/suggest"
)

//go:embed scenarios/*.txt
var shipped embed.FS

// Names returns the names of the scenarios that come with the program, sorted.
func Names() []string {
	entries, err := shipped.ReadDir("scenarios")
	if err != nil {
		panic(err) // it is part of the program
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".txt"))
	}
	slices.Sort(names)
	return names
}

// Shipped returns a scenario that comes with the program.
func Shipped(name string) (*Scenario, error) {
	text, err := shipped.ReadFile("scenarios/" + name + ".txt")
	if err != nil || strings.Contains(name, "/") {
		return nil, fmt.Errorf("scenario: %.40q is neither a file nor the name of one that comes with the program%s", name, suggest.For(name, Names()))
	}
	return Parse(name+".txt", string(text), nil)
}
