// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"liqo.io/liqo/playground/internal/inside"
	"liqo.io/liqo/playground/internal/lifecycle"
	"liqo.io/liqo/playground/internal/machine"
	"liqo.io/liqo/playground/internal/record"
)

func (a *app) node() *cobra.Command {
	node := &cobra.Command{
		Use: "node", Short: "Start, stop or restart a node",
		Long: `Stopping a node is abrupt, like a power failure: its processes are killed and its link
goes down. Kubernetes notices after about 21 seconds. The first node shares its link
with the control plane, which goes on running.`,
	}
	for power, short := range map[lifecycle.Power]string{
		lifecycle.On: "Start a node that was stopped", lifecycle.Off: "Stop a node, abruptly", lifecycle.Reboot: "Stop a node, abruptly, and start it again",
	} {
		node.AddCommand(&cobra.Command{
			Use: string(power) + " CLUSTER NODE", Short: short, Args: cobra.ExactArgs(2),
			Example:           fmt.Sprintf("  playground node %s rome rome-worker", power),
			ValidArgsFunction: completeNode,
			RunE: func(_ *cobra.Command, args []string) error {
				return a.running().SwitchNode(args[0], args[1], power)
			},
		})
	}
	return node
}

func completeNode(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return completeClusters(1)(cmd, args, prefix)
	}
	var names []cobra.Completion
	if _, t, err := record.LoadComplete(); err == nil {
		c, _ := t.Cluster(args[0])
		for _, n := range c.Nodes {
			names = append(names, n.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) component() *cobra.Command {
	component := &cobra.Command{
		Use: "component", Short: "Start, stop, restart or kill a component of a cluster",
		Long: `A component is named as in status: kube-apiserver, etcd, ... of the control plane, and
NODE/kubelet, NODE/containerd, NODE/kube-proxy of a node. A component that is stopped
stays down; one that is killed is restarted, as after a crash.`,
	}
	for action, short := range map[machine.Action]string{
		machine.StartAction: "Start a component that was stopped", machine.StopAction: "Stop a component and keep it down",
		machine.RestartAction: "Stop a component and start it again", machine.KillAction: "Kill a component; it is restarted",
	} {
		component.AddCommand(&cobra.Command{
			Use: string(action) + " CLUSTER COMPONENT", Short: short, Args: cobra.ExactArgs(2),
			Example:           fmt.Sprintf("  playground component %[1]s rome kube-apiserver\n  playground component %[1]s rome rome-worker/kubelet", action),
			ValidArgsFunction: completeComponent,
			RunE: func(cmd *cobra.Command, args []string) error {
				return inside.Act(cmd.Context(), args[0], args[1], action)
			},
		})
	}
	return component
}

func completeComponent(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return completeClusters(1)(cmd, args, prefix)
	}
	names, _ := inside.ComponentNames(args[0]) // nothing to offer if it fails
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) exec() *cobra.Command {
	return &cobra.Command{
		Use: "exec CLUSTER NODE -- COMMAND [ARG...]", Short: "Run a command inside a node",
		Example:           "  playground exec rome rome-worker -- ip route\n  playground exec rome rome-worker -- ctr images ls -q",
		Args:              cobra.MinimumNArgs(3),
		ValidArgsFunction: completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := inside.EnterNode(cmd.Context(), args[0], args[1], args[2:])
			if err != nil {
				return err
			}
			return a.through(run)
		},
	}
}

func (a *app) logs() *cobra.Command {
	var follow bool
	var lines int
	c := &cobra.Command{
		Use: "logs CLUSTER COMPONENT", Short: "Print the log of a component",
		Example:           "  playground logs rome kube-apiserver --tail 50\n  playground logs rome rome-worker/kubelet -f",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeComponent,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := inside.LogFile(args[0], args[1])
			if err != nil {
				return err
			}
			from := "+1"
			if lines >= 0 {
				from = fmt.Sprint(lines)
			}
			tail := []string{"--lines=" + from}
			if follow {
				tail = append(tail, "--follow")
			}
			return a.through(exec.CommandContext(cmd.Context(), "tail", append(tail, file)...))
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on printing what is added")
	c.Flags().IntVar(&lines, "tail", -1, "number of lines from the end (-1: all)")
	return c
}

// through runs a program with this one's streams and passes its exit code on.
func (a *app) through(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, a.out, a.err
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exitError{max(1, exit.ExitCode())}
	}
	return err
}

func (a *app) load() *cobra.Command {
	return &cobra.Command{
		Use: "load ARCHIVE [CLUSTER...]", Short: "Load an image archive into the nodes of clusters (of all if none is named)",
		Long: `load imports an OCI or Docker archive into containerd on every real node. Pods then use
the image with imagePullPolicy IfNotPresent or Never. The name of an image that playground
image build knows (demo, tools) stands for its archive.`,
		Example: "  playground load ./my-image.tar rome\n  playground load demo",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			archive, err := a.archive(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return inside.Load(cmd.Context(), a.printer(), archive, args[1:])
		},
	}
}
