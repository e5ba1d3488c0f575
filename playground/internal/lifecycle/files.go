// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"liqo.io/liqo/playground/internal/cluster"
	"liqo.io/liqo/playground/internal/pki"
	"liqo.io/liqo/playground/internal/topology"
)

// write makes a cluster's authorities, issues what its plan asks for, and writes its files.
func write(c topology.Cluster, plan cluster.Plan) error {
	now := time.Now()
	authorities := map[string]*pki.Authority{}
	for _, name := range cluster.Authorities {
		a, err := pki.NewAuthority(c.Name+"-"+name, now)
		if err != nil {
			return err
		}
		base := cluster.PKI(c, name)
		authorities[base] = a
		if err := writePair(base, pki.Pair{Certificate: a.Certificate, Key: a.Key}); err != nil {
			return err
		}
	}
	tokens, err := pki.ServiceAccountKey()
	if err != nil {
		return err
	}
	if err := writePair(cluster.PKI(c, "sa"), tokens); err != nil {
		return err
	}
	for _, want := range plan.Credentials {
		if err := issue(c, authorities[want.Authority], want); err != nil {
			return err
		}
	}
	for _, f := range plan.Files {
		if err := writeFile(f.Path, []byte(f.Text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func issue(c topology.Cluster, a *pki.Authority, want cluster.Credential) error {
	pair, err := a.Issue(want.Subject)
	if err != nil {
		return err
	}
	if want.Kubeconfig == "" {
		return writePair(want.Pair, pair)
	}
	text, err := pki.Kubeconfig(pki.Access{
		Cluster: c.Name, User: want.Subject.User, Server: c.Server(), Authority: a.Certificate, Pair: pair,
	})
	if err != nil {
		return err
	}
	return writeFile(want.Kubeconfig, text, 0o600)
}

func writePair(base string, pair pki.Pair) error {
	if err := writeFile(base+".crt", pair.Certificate, 0o644); err != nil {
		return err
	}
	return writeFile(base+".key", pair.Key, 0o600)
}

func writeFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.WriteFile(path, data, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
