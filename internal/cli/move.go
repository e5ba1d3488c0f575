// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"liqo.io/liqo/internal/action/move"
	"liqo.io/liqo/internal/cli/access"
)

func newMove(f *access.Factory) *cobra.Command {
	cmd := &cobra.Command{Use: "move", Short: "Move data to another cluster", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return fmt.Errorf("move what? Try: %s volume NAME --target-node NODE", cmd.CommandPath())
	}}
	cmd.AddCommand(newMoveVolume(f))
	return cmd
}

func newMoveVolume(f *access.Factory) *cobra.Command {
	o := move.Options{}
	cancel, node := false, ""
	sizes := map[string]*string{}
	cmd := &cobra.Command{
		Use: "volume NAME", Aliases: []string{"pvc", "volumes"}, Short: "Move the data of a claim to another cluster",
		Long: f.Text("Move the data of a claim of a virtual storage class to another node: to a virtual node, from it to this cluster, or from\n" +
			"one virtual node to another. The claim keeps its name and labels; pods that use it run where the data is from then on.\n\n" +
			"No pod may use the claim, unless with --online: then the data is copied while pods run, and these are evicted only for the\n" +
			"last differences. Their controllers start them again at the target.\n\n" +
			"Every file is verified by its checksum before the claim gets the new volume, and the old data is deleted only after that.\n" +
			"The move goes on if this command is interrupted; the same command follows it again."),
		Example: f.Text(`  # Move the data of claim data to the cluster of node liqo-milan
  {{name}} move volume data -n shop --target-node liqo-milan

  # While its pods run
  {{name}} move volume data -n shop --target-node liqo-milan --online

  # How much would be copied?
  {{name}} move volume data -n shop --target-node liqo-milan --dry-run

  # Take a move back that has not ended yet
  {{name}} move volume data -n shop --cancel`),
		Args: oneClaim, ValidArgsFunction: f.CompleteClaim,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Claim = args[0]
			if o.TargetNode == "" {
				o.TargetNode = node
			}
			var err error
			if o.Resources, err = moverResources(sizes); err != nil {
				return err
			}
			switch {
			case o.TargetNode == "" && !cancel:
				return errors.New("--target-node must name the node to move the data to")
			case node != "" && node != o.TargetNode:
				return fmt.Errorf("--node %s and --target-node %s differ; give one of them", node, o.TargetNode)
			case cancel && (o.TargetNode != "" || o.Online || o.KeepSource || o.DryRun || o.Resources.Requests != nil || o.Resources.Limits != nil):
				return errors.New("--cancel takes the name of the claim and no other flag of a move")
			}
			c, err := f.Client()
			if err != nil {
				return err
			}
			if o.Namespace, err = f.ClaimNamespace(cmd); err != nil {
				return err
			}
			if cancel {
				return move.Cancel(cmd.Context(), c, o, f.Printer)
			}
			o.Logs = f.PodLogs
			return move.Volume(cmd.Context(), c, o, f.Printer)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.TargetNode, "target-node", "", "Node to move the data to: a virtual node, or a node of this cluster")
	flags.StringVar(&node, "node", "", "The same")
	flags.BoolVar(&o.Online, "online", false, "Copy while pods use the volume, and evict them for the last differences only")
	flags.BoolVar(&o.KeepSource, "keep-source", false, "Keep the data at the source as a released volume")
	flags.BoolVar(&o.DryRun, "dry-run", false, "Check the move and count the files, and change nothing")
	flags.BoolVar(&cancel, "cancel", false, "Take back the move that is under way; the volume is as before")
	for _, name := range []string{"target-node", "node"} {
		_ = cmd.RegisterFlagCompletionFunc(name, f.CompleteNodes) // the flag exists
	}
	for name, what := range map[string]string{
		"containers-cpu-requests": "CPU requests", "containers-cpu-limits": "CPU limits", "containers-ram-requests": "Memory " +
			"requests", "containers-ram-limits": "Memory limits",
	} {
		sizes[name] = flags.String(name, "", what+" of each of the two pods that copy")
	}
	access.TimeoutFlag(cmd, &o.Timeout, 0)
	return cmd
}

func oneClaim(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want the name of one claim, got %d arguments", len(args))
	}
	return nil
}

func moverResources(flags map[string]*string) (r corev1.ResourceRequirements, err error) {
	for name, to := range map[string]struct {
		list *corev1.ResourceList
		what corev1.ResourceName
	}{
		"containers-cpu-requests": {&r.Requests, corev1.ResourceCPU}, "containers-cpu-limits": {&r.Limits, corev1.ResourceCPU},
		"containers-ram-requests": {&r.Requests, corev1.ResourceMemory}, "containers-ram-limits": {&r.Limits, corev1.ResourceMemory},
	} {
		text := *flags[name]
		if text == "" {
			continue
		}
		quantity, err := resource.ParseQuantity(text)
		if err != nil || quantity.Sign() <= 0 {
			return r, fmt.Errorf("--%s %q is not a valid quantity, such as 500m or 256Mi", name, text)
		}
		if *to.list == nil {
			*to.list = corev1.ResourceList{}
		}
		(*to.list)[to.what] = quantity
	}
	for what, request := range r.Requests {
		if limit, limited := r.Limits[what]; limited && request.Cmp(limit) > 0 {
			return r, fmt.Errorf("the %s requests %s exceed the limits %s", what, request.String(), limit.String())
		}
	}
	return r, nil
}
