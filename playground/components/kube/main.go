// SPDX-License-Identifier: Apache-2.0

// Command kube is every Kubernetes program of the playground in one file.
//
// One file means one copy of its code pages in memory for all components of all
// clusters; that is the difference between 0.5 GB and 0.9 GB for a cluster. The
// program is chosen by argv[0] (a symlink such as "kubectl"), or by the first argument
// ("kube kubelet --config ...").
//
// Two programs are the playground's own: "cloud" gives a cluster what a cloud provider
// would, and "ready" waits until a cluster is complete.
//
// It must stay free of playground policy: the playground module decides what runs where.
// It starts these programs and knows nothing of their code.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	_ "time/tzdata" // CronJob time zones, as in the upstream controller manager

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl auth plugins, as upstream
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	kubemark "k8s.io/kubernetes/cmd/kubemark/app"

	"liqo.io/liqo/playground/components/kube/internal/cloud"
	"liqo.io/liqo/playground/components/kube/internal/ready"
)

// programs maps a program name to its entry point. Entries return the process's exit code.
var programs = map[string]func() int{
	"kube-apiserver":          component(apiserver.NewAPIServerCommand),
	"kube-controller-manager": component(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              component(proxy.NewProxyCommand),
	"kubelet":                 component(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kubemark":                component(kubemark.NewHollowNodeCommand),
	"kubectl":                 runKubectl,
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"cloud":                   own(cloud.NewCommand),
	"ready":                   own(ready.NewCommand),
}

func component(command func() *cobra.Command) func() int {
	return func() int { return cli.Run(command()) }
}

// own returns an entry that runs a program of ours until SIGTERM and prints its error as one sentence.
func own(command func() *cobra.Command) func() int {
	return func() int {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		program := command()
		program.SilenceErrors, program.SilenceUsage = true, true
		if err := program.ExecuteContext(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", program.Name(), err)
			return 1
		}
		return 0
	}
}

// runKubectl follows upstream's main: verbosity must be known before the command tree is built.
func runKubectl() int {
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}

func main() {
	name := filepath.Base(os.Args[0])
	if _, known := programs[name]; !known && len(os.Args) > 1 {
		name, os.Args = filepath.Base(os.Args[1]), os.Args[1:]
	}
	run, known := programs[name]
	if !known {
		names := make([]string, 0, len(programs))
		for n := range programs {
			names = append(names, n)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "kube: no program %q in this file; it holds: %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(run())
}
