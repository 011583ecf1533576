package hedged

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/internal/config"
)

func (o *options) config() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, print or describe the settings, without starting anything",
		Args:  cli.Args(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "check [FILE]",
		Short:   "Say everything that is wrong with the settings; exit 0 when nothing is",
		Example: "  hedged config check hedged.yaml",
		Args:    cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.path = args[0]
			}
			c, err := o.load()
			if err != nil {
				return err
			}
			for _, w := range c.Warnings {
				fmt.Fprintln(o.stderr, "warning:", w)
			}
			_, err = fmt.Fprintln(o.stdout, "ok")
			return err
		},
	}, &cobra.Command{
		Use:   "print",
		Short: "Print the settings in force, all sources together, as a file",
		Example: `  hedged config print > hedged.yaml
  hedged config print --config hedged.yaml --target 3%`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			c, err := o.load()
			if err != nil {
				return err
			}
			return c.Print(o.stdout)
		},
	}, &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the file, for editors",
		Args:  cli.Args(cobra.NoArgs),
		RunE:  func(*cobra.Command, []string) error { return config.Schema(o.stdout) },
	})
	return cmd
}
