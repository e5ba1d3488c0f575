// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"liqo.io/liqo/playground/internal/fault"
)

func (a *app) fault() *cobra.Command {
	c := &cobra.Command{
		Use: "fault", Short: "Disturb the traffic between two clusters",
		Long: `A fault lies on the link between two clusters, or between a cluster and the machine
itself, named host. Faults of different kinds on one link add up. Traffic inside a
cluster is never touched.`,
	}
	c.AddCommand(a.partition(), a.heal(), a.clear(),
		a.shape("delay", "50ms | 50ms±5ms", "Delay every packet, in each direction (a round trip takes twice as long)",
			func(s fault.State, x, y, value string) (fault.State, error) {
				d, err := fault.ParseDelay(value)
				return s.SetDelay(x, y, d), err
			}),
		a.shape("loss", "5%", "Lose a share of the packets, in each direction",
			func(s fault.State, x, y, value string) (fault.State, error) {
				l, err := fault.ParseLoss(value)
				return s.SetLoss(x, y, l), err
			}),
		a.shape("bandwidth", "100mbit", "Limit the bandwidth of each direction",
			func(s fault.State, x, y, value string) (fault.State, error) {
				r, err := fault.ParseRate(value)
				return s.SetBandwidth(x, y, r), err
			}))
	return c
}

// change applies a change to the faults and prints the links it concerns.
func (a *app) change(ctx context.Context, names []string, change func(fault.State) fault.State) error {
	now, err := a.running().Fault(ctx, names, change)
	if err != nil {
		return err
	}
	if len(now.Links) == 0 {
		a.printf("no faults\n")
	}
	for _, l := range now.Links {
		a.printf("%s\n", l)
	}
	return nil
}

func (a *app) partition() *cobra.Command {
	var oneWay bool
	c := &cobra.Command{
		Use: "partition A B", Short: "Drop all packets between A and B, also those of established connections",
		Example: "  playground fault partition rome milan\n  playground fault partition rome milan --one-way   # only from rome to milan",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: completeClusters(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.change(cmd.Context(), args[:min(2, len(args))], func(s fault.State) fault.State { return s.Partition(args[0], args[1], oneWay) })
		},
	}
	c.Flags().BoolVar(&oneWay, "one-way", false, "only the direction from A to B")
	return c
}

func (a *app) heal() *cobra.Command {
	return &cobra.Command{
		Use: "heal A B", Short: "End a partition; other faults of the link stay",
		Args: cobra.ExactArgs(2), ValidArgsFunction: completeClusters(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.change(cmd.Context(), args[:min(2, len(args))], func(s fault.State) fault.State { return s.Heal(args[0], args[1]) })
		},
	}
}

func (a *app) clear() *cobra.Command {
	return &cobra.Command{
		Use: "clear [A [B]]", Short: "Remove every fault: of all links, of A's links, or of one link",
		Args: cobra.MaximumNArgs(2), ValidArgsFunction: completeClusters(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.change(cmd.Context(), args[:min(2, len(args))], func(s fault.State) fault.State { return s.Clear(args...) })
		},
	}
}

type setter func(s fault.State, x, y, value string) (fault.State, error)

func (a *app) shape(kind, values, short string, set setter) *cobra.Command {
	c := &cobra.Command{
		Use: kind + " A B VALUE", Short: short,
		Long:    short + ".\n\nVALUE: " + values + "; 0 removes it.",
		Example: "  playground fault " + kind + " rome milan " + firstWord(values),
		Args:    cobra.ExactArgs(3), ValidArgsFunction: completeClusters(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			// Check the value before anything is locked or changed.
			if _, err := set(fault.State{}, args[0], args[1], args[2]); err != nil {
				return err
			}
			if args[0] == args[1] {
				return errors.New("a link joins two different clusters")
			}
			return a.change(cmd.Context(), args[:min(2, len(args))], func(s fault.State) fault.State {
				s, _ = set(s, args[0], args[1], args[2]) // checked above
				return s
			})
		},
	}
	// "-5ms" is a wrong value, not flags.
	c.Flags().SetInterspersed(false)
	return c
}

func firstWord(s string) string {
	for i, r := range s {
		if r == ' ' {
			return s[:i]
		}
	}
	return s
}
