// Command hedgectl shows, steers and demonstrates hedged.
package main

import (
	"os"

	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/internal/cli/hedgectl"
)

func main() { os.Exit(cli.Execute(hedgectl.NewCommand(os.Stdout, os.Stderr))) }
