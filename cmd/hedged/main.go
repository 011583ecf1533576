// Command hedged is the control plane for hedged requests.
package main

import (
	"os"

	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/internal/cli/hedged"
)

func main() { os.Exit(cli.Execute(hedged.NewCommand(os.Stdout, os.Stderr))) }
