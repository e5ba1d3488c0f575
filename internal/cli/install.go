// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/internal/action/install"
	"liqo.io/liqo/internal/action/install/clusters"
	"liqo.io/liqo/internal/cli/access"
)

// installFlags holds the documented flags of install and upgrade.
type installFlags struct {
	options install.Options

	repoURL          string
	sharing          int
	highAvailability bool
	metrics          bool
	onlyValues       bool
	dumpPath         string
	disableTelemetry bool
}

func newInstall(f *access.Factory) *cobra.Command {
	cmd := installCommand(f, "install", "Install Liqo in a cluster, or upgrade it")
	cmd.Example = f.Text(`  {{name}} install --cluster-name rome
  {{name}} install kind --cluster-name rome
  {{name}} install --pod-cidr 10.0.0.0/16 --service-cidr 10.1.0.0/16 --api-server-url https://203.0.113.7:6443`)
	return cmd
}

func newUpgrade(f *access.Factory) *cobra.Command {
	return installCommand(f, "upgrade", "Upgrade Liqo in a cluster: the same as install")
}

func installCommand(f *access.Factory, use, short string) *cobra.Command {
	o := &installFlags{}
	cmd := &cobra.Command{
		Use: use, Short: short,
		Long: short + ".\n\nThe command detects the networks and the address of the API server; flags override them. The chart is part of the\n" +
			"program, so no repository is needed. A cluster without a name gets a random one, and keeps it.\n\n" +
			"If Liqo is installed already, settings without a flag stay as they are. A failed installation is undone.",
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return runInstall(cmd.Context(), f, cmd, o, clusters.Auto) },
	}
	o.register(cmd.PersistentFlags())
	_ = cmd.RegisterFlagCompletionFunc("service-type", cobra.FixedCompletions([]string{"ClusterIP", "NodePort", "LoadBalancer"},
		cobra.ShellCompDirectiveNoFileComp))
	setFlags(cmd, o, clusters.Generic)
	for _, row := range clusters.All {
		sub := &cobra.Command{
			Use: string(row.Name), Short: "The same for clusters of type " + string(row.Name),
			Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
			RunE: func(cmd *cobra.Command, _ []string) error { return runInstall(cmd.Context(), f, cmd, o, row.Name) },
		}
		if row.Refused != "" {
			sub.Short += " (not yet)"
			// The answer is the same for any flags.
			sub.FParseErrWhitelist, sub.Args = cobra.FParseErrWhitelist{UnknownFlags: true}, cobra.ArbitraryArgs
			sub.RunE = func(*cobra.Command, []string) error { return errors.New(row.Refused) }
		}
		setFlags(sub, o, row)
		cmd.AddCommand(sub)
	}
	return cmd
}

// setFlags adds the flags of a type of cluster.
func setFlags(cmd *cobra.Command, o *installFlags, row clusters.Type) {
	for _, flag := range row.Flags {
		cmd.Flags().Var(override(func(value string) { flag.Set(&o.options.Overrides, value) }), flag.Name, flag.Usage)
	}
}

// override is a flag whose value a row stores.
type override func(value string)

func (set override) Set(value string) error { set(value); return nil }
func (override) String() string             { return "" }
func (override) Type() string               { return "string" }

func (o *installFlags) register(flags *pflag.FlagSet) {
	overrides := &o.options.Overrides
	flags.StringVar(&o.options.Version, "version", "", "Version to install: that of this program, or the tag of the images for --local-chart-path")
	flags.StringVar(&o.repoURL, "repo-url", "", "Not needed: the chart is part of this program")
	flags.StringVar(&o.options.ChartPath, "local-chart-path", "", "Folder or archive of another chart; needs --version")
	flags.BoolVar(&o.onlyValues, "only-output-values", false, "Write the values of the chart to a file, and install nothing")
	flags.StringVar(&o.dumpPath, "dump-values-path", "./values.yaml", "File for --only-output-values")
	flags.BoolVar(&o.options.DryRun, "dry-run", false, "Check everything and change nothing")
	flags.DurationVar(&o.options.Timeout, "timeout", 10*time.Minute, "Maximum duration of the command")
	flags.StringVar(&overrides.ClusterName, "cluster-name", "", "Name of this cluster")
	flags.StringToStringVar(&overrides.Labels, "cluster-labels", nil, "Labels of this cluster, which its virtual nodes in other clusters get (KEY=VALUE,...)")
	flags.IntVar(&o.sharing, "sharing-percentage", 90, "Share of this cluster's free resources that each peer may use")
	flags.BoolVar(&o.highAvailability, "enable-ha", false, "Run two gateways, each with its own lane, and two controller managers")
	flags.StringSliceVar(&overrides.ReservedSubnets, "reserved-subnets", nil, "Networks that must not be used for remapping")
	flags.StringArrayVar(&o.options.Set, "set", nil, "Value of the chart in the syntax of Helm (KEY=VALUE); may be repeated")
	flags.BoolVar(&o.options.ResetValues, "reset-values", false, "Forget the settings of earlier installations")
	flags.BoolVar(&o.options.AllowDowngrade, "allow-downgrade", false, "Install a version older than the installed one")
	flags.BoolVar(&overrides.AnyAPIServer, "disable-api-server-sanity-check", false, "Accept an API server address that differs from the kubeconfig's")
	flags.BoolVar(&overrides.SkipValidation, "skip-validation", false, "Do not check networks against the addresses in use")
	flags.BoolVar(&o.metrics, "enable-metrics", false, "Gateways, virtual kubelets and the name server serve metrics; the Prometheus operator, if there is "+
		"one, collects them")
	flags.BoolVar(&o.disableTelemetry, "disable-telemetry", false, "Not needed: Liqo sends no telemetry")
	flags.StringVar(&overrides.ServiceType, "service-type", "", "Type of the services that other clusters reach: ClusterIP, NodePort or LoadBalancer")
}

// check refuses flags that contradict each other.
func (o *installFlags) check() error {
	switch {
	case o.repoURL != "" && o.options.ChartPath != "":
		return errors.New("--repo-url and --local-chart-path exclude each other")
	case o.repoURL != "":
		return errors.New("--repo-url: this program embeds its chart; to install another one, download it and use --local-chart-path")
	case o.options.ChartPath != "" && o.options.Version == "":
		return errors.New("--local-chart-path needs --version")
	case o.sharing < 0 || o.sharing > 100:
		return fmt.Errorf("--sharing-percentage %d: want 0 to 100", o.sharing)
	case o.options.Timeout <= 0:
		return errors.New("--timeout must be positive")
	}
	return nil
}

func runInstall(ctx context.Context, f *access.Factory, cmd *cobra.Command, o *installFlags, name clusters.Name) error {
	if err := o.check(); err != nil {
		return err
	}
	cluster, err := f.Cluster()
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("sharing-percentage") {
		o.options.SharingPercentage = &o.sharing
	}
	if cmd.Flags().Changed("enable-ha") {
		o.options.HighAvailability = &o.highAvailability
	}
	if cmd.Flags().Changed("enable-metrics") {
		o.options.Metrics = &o.metrics
	}
	f.Printer.Done("Kubernetes clients successfully initialized")
	if o.disableTelemetry {
		f.Printer.Info("--disable-telemetry changes nothing: Liqo sends no telemetry")
	}
	o.options.Overrides.Type, o.options.Namespace, o.options.Wait = name, f.Namespace(), true
	f.Printer.Done("Installer initialized")
	f.Printer.Start("Reading the cluster")
	prepared, err := install.Prepare(ctx, cluster, o.options)
	if err != nil {
		return err
	}
	f.Printer.Done("Cluster configuration correctly retrieved")
	if prepared.GeneratedName != "" {
		f.Printer.Info("No cluster name specified. Generated: " + prepared.GeneratedName)
	}
	if prepared.Unmonitored {
		f.Printer.Info("Components serve metrics, but there are no monitors: this cluster has no Prometheus operator (kinds ServiceMonitor and PodMonitor)")
	}
	if prepared.UnverifiedKubelets() {
		f.Printer.Info("The metric agent does not verify the certificates of kubelets, because kubelets of such clusters sign their own; " +
			"to verify them: --set 'metricAgent.pod.extraArgs={--kubelet-insecure-tls=false}'")
	}
	f.Printer.Done("Installation parameters correctly generated")
	if o.onlyValues {
		return writeValues(f, o.dumpPath, prepared.Values)
	}
	outcome, err := prepared.Apply(ctx, f.Printer)
	switch {
	case err != nil:
		return err
	case o.options.DryRun:
		f.Printer.Done("Installation completed (dry-run)")
		return nil
	case outcome.Unchanged:
		f.Printer.Done("Nothing to change: Liqo " + outcome.Version + " is already installed with these settings")
		return nil
	}
	f.Printer.Done(fmt.Sprintf("All Set! You can now proceed establishing a peering (%s peer --help for more information)", f.Name))
	f.Printer.Info("Clusters of different versions can peer if their protocol ranges overlap; only equal versions are tested")
	return nil
}

func writeValues(f *access.Factory, path string, values map[string]any) error {
	text, err := yaml.Marshal(values)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write the values: %w", err)
	}
	f.Printer.Done("All Set! Chart values written to " + path)
	return nil
}
