// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"

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
	c.AddCommand(a.partition(), a.allow(), a.heal(), a.clear(), a.counters(),
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

func (a *app) allow() *cobra.Command {
	var oneWay bool
	c := &cobra.Command{
		Use: "allow A B PROTOCOL/PORT...", Short: "Close the link between A and B for everything but named ports",
		Long: `allow drops every packet between A and B but those of flows to the named ports, which
either side may open at the other, and the replies. With --one-way, only A may open
them, at B. Established connections to other ports are cut. It replaces what an
earlier allow of this link named; heal and clear end it.

A port is tcp/443, a range udp/31000-31010, or icmp. Replies are recognized by their
port, not by a state that could expire: from a named UDP port, B can also send first.`,
		Example: `  playground fault allow rome milan udp/31000 --one-way   # only from rome, only to milan's UDP port
  playground fault allow rome milan tcp/443 tcp/6443 icmp
  playground fault counters rome milan                    # what passed, and what was dropped`,
		Args: cobra.MinimumNArgs(3), ValidArgsFunction: completeClusters(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ports, err := fault.ParsePorts(args[2:])
			if err != nil {
				return err
			}
			return a.change(cmd.Context(), args[:2], func(s fault.State) fault.State { return s.Allow(args[0], args[1], ports, oneWay) })
		},
	}
	c.Flags().BoolVar(&oneWay, "one-way", false, "only A may open the ports, at B")
	return c
}

func (a *app) counters() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "counters [A [B]]", Short: "Show how many packets the faults have dropped and, on a link closed by allow, let through",
		Long: `counters shows the packets of every fault that drops some: of all links, of A's links, or
of one link, in each direction. On a link that allow has closed it also counts, behind
all faults, what passed: "anything else" is then 0. Every change of a fault restarts
the count. Delay and bandwidth are not counted.`,
		Example: "  playground fault counters rome milan\n  playground fault counters -o json",
		Args:    cobra.MaximumNArgs(2), ValidArgsFunction: completeClusters(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("output format %q: use json, or none for a table", output)
			}
			counters, err := a.running().Counters(args)
			if err != nil {
				return err
			}
			if output == "json" {
				encoder := json.NewEncoder(a.out)
				encoder.SetIndent("", "  ")
				return encoder.Encode(counters)
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "FROM\tTO\tVERDICT\tWHAT\tPACKETS\tBYTES")
			for _, c := range counters {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\n", c.From, c.To, c.Verdict, c.What, c.Packets, c.Bytes)
			}
			return w.Flush()
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "format: json")
	return c
}

func (a *app) heal() *cobra.Command {
	return &cobra.Command{
		Use: "heal A B", Short: "End a partition, and what allow has closed; other faults of the link stay",
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
