// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/internal/offloading/kinds"
)

// role is a process with rights of its own: what packages it is made of, as far as they talk to the API server of
// its own cluster.
type role struct {
	name     string
	packages []string
}

// roles is the table of who may do what. A package that is in two rows gives its marks to both.
var roles = []role{
	{"controller-manager", []string{
		"./internal/kube/manager", "./internal/kube/policies", "./internal/peering/flows", "./internal/peering/foreigncluster",
		"./internal/peering/pins", "./internal/peering/resourceslice", "./internal/peering/replicate", "./internal/peering/tenant",
		"./internal/offloading/certificate", "./internal/offloading/hosts", "./internal/offloading/namespacemap",
		"./internal/offloading/namespaceoffloading", "./internal/offloading/peerobjects", "./internal/offloading/peers", "./internal/offloading/pullsecret", "./internal/offloading/remotecontents",
		"./internal/offloading/remotenamespace", "./internal/offloading/shadowpod", "./internal/offloading/shadowslice",
		"./internal/offloading/virtualnode", "./internal/offloading/standby", "./internal/offloading/webhook", "./internal/storage",
		"./internal/storage/home", "./internal/storage/move", "./internal/network/gateways", "./internal/network/ipmapping",
		"./internal/network/keys", "./internal/network/networkconfig", "./internal/network/nodereport", "./internal/network/nodes",
		"./internal/network/pools", "./internal/network/spread", "./internal/network/tenants", "./internal/network/trust",
		"./internal/network/tunnelendpoint",
	}},
	{"auth", []string{"./internal/peering/auth/server", "./internal/peering/auth/ways"}},
	{"virtual-kubelet", []string{"./internal/offloading/virtualkubelet", "./internal/offloading/kubeletapi", "./internal/offloading/reflection/engine", "./internal/offloading/reflection/objects/budgets", "./internal/offloading/reflection/objects/custom", "./internal/offloading/reflection/pods", "./internal/offloading/reflection/pods/tolerations", "./internal/offloading/reflection/tokens", "./internal/offloading/reflection/events", "./internal/network/translator", "./internal/storage/claims"}},
	{"metric-agent", []string{"./internal/offloading/metricagent"}},
	{"dns", []string{"./internal/offloading/nameserver"}},
	{"gateway", []string{"./internal/network/agent/gateway"}},
	{"gateway-pods", []string{"./internal/network/agent"}},
	{"route", []string{"./internal/network/agent/route"}},
	{"cleanup", []string{"./internal/peering/cleanup"}},
	{"crds", []string{"./internal/kube/crds"}},
}

// The namespaces that marks may name. Rights in the install namespace become a Role; those in namespaces that
// come and go, a ClusterRole that a controller binds there.
var scopes = map[string]string{
	"liqo":            "",
	"liqo-tenant":     "-tenant",
	"liqo-remote":     "-remote",
	"kube-node-lease": "-lease",
	"liqo-offloaded":  "-offloaded", // offloaded namespaces
	"liqo-storage":    "-storage",   // the namespace of real claims, which the chart knows
}

func writeRights(ctx context.Context, r role) error {
	var paths []string
	for _, dir := range r.packages {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			continue // not written yet
		}
		paths = append(paths, "paths="+dir)
	}
	var marks []byte
	if len(paths) > 0 {
		var err error
		if marks, err = controllerGen(ctx, append(paths, "rbac:roleName=liqo-"+r.name, "output:rbac:stdout")...); err != nil {
			return err
		}
	}
	text, err := rights(r, marks)
	if err != nil {
		return fmt.Errorf("rights of %s: %w", r.name, err)
	}
	return os.WriteFile(fmt.Sprintf(rightsOf, r.name), text, 0o644)
}

var mark = []byte("// +kubebuilder:rbac:")

// unlisted fails if a package asks for rights that no role would get.
func unlisted() (err error) {
	listed := map[string]bool{}
	for _, r := range roles {
		for _, dir := range r.packages {
			listed[filepath.Clean(dir)] = true
		}
	}
	for _, top := range []string{"cmd", "internal"} {
		walked := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || listed[filepath.Dir(path)] {
				return err
			}
			text, err := os.ReadFile(path)
			if bytes.Contains(text, mark) {
				err = fmt.Errorf("%s asks for rights, but no role has the package ./%s; add it to a row of roles in hack/generate/rights.go", path, filepath.Dir(path))
			}
			return err
		})
		err = errors.Join(err, walked)
	}
	return err
}

// rights turns what controller-gen made of the marks into the roles of the chart.
func rights(r role, marks []byte) ([]byte, error) {
	var out bytes.Buffer
	source := "the marks +kubebuilder:rbac in"
	if r.name == kinds.VirtualKubelet || r.name == kinds.Manager {
		source = "the rows in internal/offloading/kinds, and " + source
	}
	fmt.Fprintf(&out, "# Made by `make generate` from %s:\n# %s\n", source, strings.Join(r.packages, " "))
	for _, document := range strings.Split(string(marks), "---\n") {
		var in rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &in); err != nil {
			return nil, err
		}
		if in.Kind == "" {
			continue
		}
		suffix, known := scopes[in.Namespace]
		if in.Namespace != "" && !known {
			return nil, fmt.Errorf("a marker names the namespace %q; known are liqo (the install namespace), liqo-tenant (any tenant's), liqo-remote (any namespace offloaded to us), liqo-offloaded (any that is offloaded to a peer), liqo-storage (that of real claims), kube-node-lease", in.Namespace)
		}
		kind := in.Kind
		if suffix != "" {
			kind = "ClusterRole"
		}
		role := struct {
			Kind     string              `json:"kind"`
			Metadata map[string]string   `json:"metadata"`
			Rules    []rbacv1.PolicyRule `json:"rules"`
		}{kind, map[string]string{"name": in.Name + suffix}, merged(in.Rules, kinds.Rules(r.name, in.Namespace))}
		text, err := yaml.Marshal(role)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes(), nil
}
