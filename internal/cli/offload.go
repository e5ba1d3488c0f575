// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/internal/action/offload"
	"liqo.io/liqo/internal/cli/access"
)

const (
	offloadTimeout   = 20 * time.Second
	unoffloadTimeout = 2 * time.Minute
)

func newOffload(f *access.Factory) *cobra.Command {
	cmd := &cobra.Command{Use: "offload", Short: "Extend a namespace to other clusters", Args: cobra.NoArgs, RunE: wantsResource("offload")}
	cmd.AddCommand(newOffloadNamespace(f))
	return cmd
}

// wantsResource is the error of a command without its second word.
func wantsResource(verb string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		return fmt.Errorf("%s what? Try: %s namespace NAME", verb, cmd.CommandPath())
	}
}

func newOffloadNamespace(f *access.Factory) *cobra.Command {
	o := offload.Options{}
	output := ""
	cmd := &cobra.Command{
		Use: "namespace NAME", Aliases: []string{"ns"}, Short: "Let pods of a namespace run in other clusters",
		Long: f.Text("Let pods of a namespace run in other clusters. Each chosen cluster gets a remote namespace with the Services, configuration\n" +
			"and Secrets that the pods need.\n\n" +
			"Run the command again to change the settings, except for the names of remote namespaces. If a cluster is no longer chosen, its\n" +
			"remote namespace is deleted with its contents; pods that ran there fail, and their controllers start others. The command\n" +
			"lists what will be deleted. It refuses if there are volumes or objects that this cluster did not create, or if this\n" +
			"cluster cannot read the remote namespace. This machine needs no access to the other clusters."),
		Example: f.Text(`  # Let the scheduler choose among all clusters, including this one
  {{name}} offload namespace shop

  # Only in other clusters: those in Europe, and all cheap ones
  {{name}} offload namespace shop --pod-offloading-strategy Remote -l region=europe -l 'tier in (spot,bronze)'

  # Show the object without applying it
  {{name}} offload namespace shop --output yaml`),
		Args: oneNamespace, ValidArgsFunction: f.CompleteOneNamespace,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Namespace = args[0]
			if cmd.Flags().Changed("output") {
				return printOffloading(f.Streams.Out, o, output)
			}
			c, err := f.Client()
			if err != nil {
				return err
			}
			return offload.Namespace(cmd.Context(), c, o, f.Printer)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.PodOffloadingStrategy, "pod-offloading-strategy", "LocalAndRemote", "Where pods may run: LocalAndRemote, Local or Remote")
	flags.StringVar(&o.NamespaceMappingStrategy, "namespace-mapping-strategy", "DefaultName", "How remote namespaces are named: DefaultName or EnforceSameName")
	flags.StringArrayVarP(&o.Selectors, "selector", "l", nil, "Label selector of the clusters to choose; repeated, clusters that match any of them "+
		"(default: all clusters)")
	flags.BoolVar(&o.Force, "force", false, "Also delete remote namespaces with volumes or objects of others, or that cannot be read, in clusters no "+
		"longer chosen")
	flags.StringVarP(&output, "output", "o", "", "Show the NamespaceOffloading as json or yaml instead of applying it")
	access.TimeoutFlag(cmd, &o.Timeout, offloadTimeout)
	for name, values := range map[string][]string{
		"pod-offloading-strategy": {"LocalAndRemote", "Local", "Remote"}, "namespace-mapping-strategy": {"DefaultName", "EnforceSameName"},
		"output": {"json", "yaml"}, "selector": nil,
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// printOffloading prints the object that the command would apply. It needs no cluster.
func printOffloading(to io.Writer, o offload.Options, format string) error {
	if format != "json" && format != "yaml" {
		return fmt.Errorf("unsupported output format %q; want json or yaml", format)
	}
	offloading, err := o.NamespaceOffloading()
	if err != nil {
		return err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(offloading)
	if err != nil {
		return fmt.Errorf("encode the NamespaceOffloading: %w", err)
	}
	// The documented output, in the form of an object that does not exist yet.
	err = errors.Join(unstructured.SetNestedField(fields, nil, "metadata", "creationTimestamp"), unstructured.SetNestedMap(fields, map[string]any{}, "status"))
	if err != nil {
		return fmt.Errorf("encode the NamespaceOffloading: %w", err)
	}
	var text []byte
	if format == "yaml" {
		text, err = yaml.Marshal(fields)
	} else if text, err = json.MarshalIndent(fields, "", "    "); err == nil {
		text = append(text, '\n')
	}
	if err != nil {
		return fmt.Errorf("encode the NamespaceOffloading: %w", err)
	}
	_, err = to.Write(text)
	return err
}

func newUnoffload(f *access.Factory) *cobra.Command {
	cmd := &cobra.Command{Use: "unoffload", Short: "End the offloading of a namespace", Args: cobra.NoArgs, RunE: wantsResource("unoffload")}
	o := offload.UnoffloadOptions{}
	namespace := &cobra.Command{
		Use: "namespace NAME", Aliases: []string{"ns"}, Short: "End the offloading of a namespace",
		Long: f.Text("End the offloading of a namespace. Its remote namespaces are deleted with their contents; controllers start the pods elsewhere.\n\n" +
			"The command lists what will be deleted. It refuses if there are volumes or objects that this cluster did not create, or if this\n" +
			"cluster cannot read a remote namespace. This machine needs no access to the other clusters."),
		Example: f.Text("  {{name}} unoffload namespace shop"),
		Args:    oneNamespace, ValidArgsFunction: f.CompleteOneNamespace,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.Client()
			if err != nil {
				return err
			}
			o.Namespace = args[0]
			return offload.Unoffload(cmd.Context(), c, o, f.Printer)
		},
	}
	access.TimeoutFlag(namespace, &o.Timeout, unoffloadTimeout)
	namespace.Flags().BoolVar(&o.Force, "force", false, "Also delete remote namespaces with volumes or objects of others, or that cannot be read")
	cmd.AddCommand(namespace)
	return cmd
}

func oneNamespace(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want the name of one namespace, got %d arguments", len(args))
	}
	return nil
}
