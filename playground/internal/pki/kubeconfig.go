// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"encoding/base64"
	"fmt"

	"go.yaml.in/yaml/v4"
)

// Access is what one kubeconfig holds: one cluster, one user, one context, all three named
// after the cluster (the user with "-" and its role), so that several merge without a clash.
type Access struct {
	Cluster, User string
	Server        string
	Authority     []byte // PEM
	Pair          Pair
}

type kubeconfig struct {
	APIVersion     string         `yaml:"apiVersion"`
	Kind           string         `yaml:"kind"`
	CurrentContext string         `yaml:"current-context"`
	Clusters       []namedCluster `yaml:"clusters"`
	Contexts       []namedContext `yaml:"contexts"`
	Users          []namedUser    `yaml:"users"`
}

type namedCluster struct {
	Name    string `yaml:"name"`
	Cluster struct {
		Server    string `yaml:"server"`
		Authority string `yaml:"certificate-authority-data"`
	} `yaml:"cluster"`
}

type namedContext struct {
	Name    string `yaml:"name"`
	Context struct {
		Cluster string `yaml:"cluster"`
		User    string `yaml:"user"`
	} `yaml:"context"`
}

type namedUser struct {
	Name string `yaml:"name"`
	User struct {
		Certificate string `yaml:"client-certificate-data"`
		Key         string `yaml:"client-key-data"`
	} `yaml:"user"`
}

// Kubeconfig renders a kubeconfig with a context for each access; the first one is current.
func Kubeconfig(all ...Access) ([]byte, error) {
	out := kubeconfig{APIVersion: "v1", Kind: "Config"}
	for i, a := range all {
		user := a.Cluster + "-" + a.User
		if i == 0 {
			out.CurrentContext = a.Cluster
		}
		c := namedCluster{Name: a.Cluster}
		c.Cluster.Server = a.Server
		c.Cluster.Authority = base64.StdEncoding.EncodeToString(a.Authority)
		x := namedContext{Name: a.Cluster}
		x.Context.Cluster, x.Context.User = a.Cluster, user
		u := namedUser{Name: user}
		u.User.Certificate = base64.StdEncoding.EncodeToString(a.Pair.Certificate)
		u.User.Key = base64.StdEncoding.EncodeToString(a.Pair.Key)
		out.Clusters, out.Contexts, out.Users = append(out.Clusters, c), append(out.Contexts, x), append(out.Users, u)
	}
	return render(out)
}

// Merge joins kubeconfigs that Kubeconfig rendered into one.
func Merge(files ...[]byte) ([]byte, error) {
	out := kubeconfig{APIVersion: "v1", Kind: "Config"}
	for i, f := range files {
		var k kubeconfig
		if err := yaml.Unmarshal(f, &k); err != nil {
			return nil, fmt.Errorf("read kubeconfig %d: %w", i, err)
		}
		if i == 0 {
			out.CurrentContext = k.CurrentContext
		}
		out.Clusters = append(out.Clusters, k.Clusters...)
		out.Contexts = append(out.Contexts, k.Contexts...)
		out.Users = append(out.Users, k.Users...)
	}
	return render(out)
}

func render(k kubeconfig) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(k); err != nil {
		return nil, fmt.Errorf("render kubeconfig: %w", err)
	}
	return b.Bytes(), encoder.Close()
}
