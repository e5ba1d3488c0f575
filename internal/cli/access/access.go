// SPDX-License-Identifier: Apache-2.0

// Package access is how commands reach clusters: the flags that choose them, clients, the second cluster of a command, and the
// completion of names. It must not know the commands. Its proof are the tests of package cli.
package access

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/action/install"
	"liqo.io/liqo/internal/cli/output"
	"liqo.io/liqo/internal/kube/scheme"
	"liqo.io/liqo/internal/kube/version"
)

// defaultNamespace is where Liqo is installed, unless --namespace names another one.
const defaultNamespace = "liqo"

// Factory holds what all commands share: the flags that choose a cluster, and the printer.
type Factory struct {
	Streams genericiooptions.IOStreams
	Flags   *genericclioptions.ConfigFlags
	Name    string
	Verbose bool
	Printer *output.Printer
}

// listedFlags are the flags of the Kubernetes client that help lists. The others also work.
var listedFlags = []string{"kubeconfig", "context", "cluster", "user"}

// clientFlags adds the flags that choose a cluster. With a prefix they choose a second cluster and have no short forms.
func clientFlags(to *pflag.FlagSet, flags *genericclioptions.ConfigFlags, prefix string) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.AddFlags(own)
	own.VisitAll(func(flag *pflag.Flag) {
		flag.Hidden = !slices.Contains(listedFlags, flag.Name) && flag.Name != "namespace"
		if prefix != "" {
			flag.Name, flag.Shorthand = prefix+flag.Name, ""
		}
		to.AddFlag(flag)
	})
}

func (f *Factory) Register(root *cobra.Command) {
	namespace := defaultNamespace
	f.Flags.Namespace = &namespace
	f.Flags.WrapConfigFn = f.wrap
	flags := root.PersistentFlags()
	clientFlags(flags, f.Flags, "")
	flag := flags.Lookup("namespace")
	flag.DefValue, flag.Usage = defaultNamespace, "Namespace in which Liqo is installed"
	flags.BoolVarP(&f.Verbose, "verbose", "v", false, "Print more, including requests to API servers")

	_ = root.RegisterFlagCompletionFunc("namespace", f.completeNamespaces)
	for name, choose := range map[string]func(*clientcmdapi.Config) []string{
		"context": func(c *clientcmdapi.Config) []string { return slices.Collect(maps.Keys(c.Contexts)) },
		"cluster": func(c *clientcmdapi.Config) []string { return slices.Collect(maps.Keys(c.Clusters)) },
		"user":    func(c *clientcmdapi.Config) []string { return slices.Collect(maps.Keys(c.AuthInfos)) },
	} {
		_ = root.RegisterFlagCompletionFunc(name, func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			raw, err := f.Flags.ToRawKubeConfigLoader().RawConfig()
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			return withPrefix(choose(&raw), prefix), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// wrap sets the options of all requests.
func (f *Factory) wrap(config *rest.Config) *rest.Config {
	config.QPS, config.Burst = 100, 200
	config.UserAgent = "liqoctl/" + version.Version
	config.WarningHandler = f.Printer
	return config
}

func (f *Factory) Namespace() string {
	if f.Flags.Namespace == nil || *f.Flags.Namespace == "" {
		return defaultNamespace
	}
	return *f.Flags.Namespace
}

// config reads the kubeconfig. It contacts no server.
func (f *Factory) config() (*rest.Config, error) { return Config(f.Flags) }

func Config(flags *genericclioptions.ConfigFlags) (*rest.Config, error) {
	config, err := flags.ToRESTConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no cluster is configured: there is no kubeconfig, or it is empty; see --kubeconfig and the variable KUBECONFIG")
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w; see --kubeconfig and --context, and `kubectl config get-contexts`", err)
	}
	return config, nil
}

// Cluster returns the chosen cluster for Helm.
func (f *Factory) Cluster() (install.Cluster, error) {
	config, err := f.config()
	cluster := install.Cluster{Getter: f.Flags, Config: config}
	if f.Verbose {
		cluster.Log = slog.NewTextHandler(f.Streams.ErrOut, &slog.HandlerOptions{Level: slog.LevelDebug})
	}
	return cluster, err
}

// Client returns a client of the chosen cluster without contacting it.
func (f *Factory) Client() (client.WithWatch, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	return Client(config)
}

func Client(config *rest.Config) (client.WithWatch, error) {
	kinds, err := scheme.All()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: kinds})
	if err != nil {
		return nil, fmt.Errorf("cluster at %s: %w", config.Host, err)
	}
	return c, nil
}

// TimeoutFlag adds the documented flag of commands that wait.
func TimeoutFlag(cmd *cobra.Command, value *time.Duration, standard time.Duration) {
	cmd.PersistentFlags().DurationVar(value, "timeout", standard, "Maximum duration of the command")
}

// ClaimNamespace is the namespace of -n, otherwise that of the kubeconfig, as for kubectl. The default of -n is for Liqo itself.
func (f *Factory) ClaimNamespace(cmd *cobra.Command) (string, error) {
	if cmd.Flags().Changed("namespace") {
		return *f.Flags.Namespace, nil
	}
	raw, err := f.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "", fmt.Errorf("read the namespace of the kubeconfig: %w", err)
	}
	if chosen := raw.Contexts[cmp.Or(*f.Flags.Context, raw.CurrentContext)]; chosen != nil && chosen.Namespace != "" {
		return chosen.Namespace, nil
	}
	return metav1.NamespaceDefault, nil
}

func (f *Factory) PodLogs(ctx context.Context, namespace, pod string) (io.ReadCloser, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return kube.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
}

// Logs enables the logs of libraries with --verbose. They hold the URLs of requests but not the bodies, which may be secret.
func (f *Factory) Logs(cmd *cobra.Command) {
	// For these commands --verbose prints more results instead of logs.
	status := cmd.Name() == "status" || cmd.HasParent() && slices.Contains([]string{"status", "test"}, cmd.Parent().Name())
	if !f.Verbose || status {
		klog.SetLogger(logr.Discard())
		ctrllog.SetLogger(logr.Discard())
		return
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("v", "6")
	_ = flags.Set("logtostderr", "true")
	ctrllog.SetLogger(klog.Background())
}

// Text inserts the program's name into a help text.
func (f *Factory) Text(text string) string { return strings.ReplaceAll(text, "{{name}}", f.Name) }
