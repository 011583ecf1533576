// Package cli is what the commands share: exit codes, signals and how errors
// are told. The commands themselves are in a package for each binary.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hedged-project/hedged/internal/suggest"
)

// Exit codes of every command.
const (
	ExitOK      = 0
	ExitFailure = 1 // what was asked for could not be done
	ExitUsage   = 2 // it was not understood; nothing was done
)

// UsageError is an error in how a command was called.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// Args makes a failing check of arguments a UsageError.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &UsageError{err}
		}
		return nil
	}
}

// Execute runs a root command with the process's arguments until it is done,
// SIGINT or SIGTERM, and returns the exit code. Errors go to standard error.
func Execute(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled) {
		err = errors.New("interrupted")
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", root.Name(), err)
	var usage *UsageError
	if errors.As(err, &usage) || cmd == root && !root.Runnable() {
		fmt.Fprintf(os.Stderr, "Run '%s --help' for usage.\n", cmd.CommandPath())
		return ExitUsage
	}
	return ExitFailure
}

// flagError names the flag, the value and, from the flag's own description, the
// bound.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		near := suggest.For(unknown.GetSpecifiedName(), names)
		if !strings.HasPrefix(near, ";") { // none is, and there are too many to list
			near = ""
		}
		return Usagef("%v%s", err, near)
	}
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return &UsageError{err}
	}
	flag := invalid.GetFlag()
	_, usage := pflag.UnquoteUsage(flag)
	return Usagef("--%s: %q is not understood, want %s", flag.Name, invalid.GetValue(), usage)
}

// Version is the module's version and the commit that it was built from, as far as the build knows them.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			v += "+" + s.Value[:12]
		}
	}
	return v
}
