// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"liqo.io/liqo/playground/internal/image"
	"liqo.io/liqo/playground/internal/machine"
	"liqo.io/liqo/playground/internal/network"
	"liqo.io/liqo/playground/internal/pki"
	"liqo.io/liqo/playground/internal/proxy"
	"liqo.io/liqo/playground/internal/record"
	"liqo.io/liqo/playground/internal/topology"
)

// ProxyAuthority is the path of the certificate of the authority that a proxy's own certificate is from.
func ProxyAuthority(p proxy.Proxy, c topology.Cluster) string {
	return filepath.Join(proxy.Dir(p, c), "ca.crt")
}

// AddProxy starts a proxy, whose number it chooses, and waits until it listens.
func (p Playground) AddProxy(ctx context.Context, wanted proxy.Proxy) (added proxy.Proxy, c topology.Cluster, err error) {
	err = record.Exclusively(func(state record.State, t topology.Topology) error {
		if c, err = record.Cluster(t, wanted.Cluster); err != nil {
			return err
		}
		wanted.Number = 1
		for slices.ContainsFunc(state.Proxies, func(o proxy.Proxy) bool { return o.Name() == wanted.Name() }) {
			wanted.Number++
		}
		plan, err := proxy.New(wanted, c)
		if err != nil {
			return err
		}
		step := p.Progress.Step("start " + wanted.Name())
		err = p.startProxy(ctx, wanted, c, plan)
		step.End(err)
		if err != nil {
			return errors.Join(err, removeProxy(wanted, c, plan))
		}
		added = wanted
		state.Proxies = append(slices.Clone(state.Proxies), wanted)
		return state.Save()
	})
	return added, c, err
}

func (p Playground) startProxy(ctx context.Context, wanted proxy.Proxy, c topology.Cluster, plan proxy.Plan) error {
	if err := prepareProxy(ctx, filepath.Join(p.Builder.Cache, "debian"), plan, ProxyAuthority(wanted, c)); err != nil {
		return err
	}
	if err := network.AddExtra(c, plan.Endpoint); err != nil {
		return err
	}
	if err := machine.Start(plan.Machine, record.SpecPath(plan.Machine.Name)); err != nil {
		return err
	}
	address := net.JoinHostPort(plan.Endpoint.Address.String(), strconv.Itoa(wanted.Listen))
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := network.Inside(plan.Endpoint.NetNS, func() error {
			conn, err := net.DialTimeout("tcp4", address, time.Second)
			if err != nil {
				return err
			}
			return conn.Close()
		})
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%s does not listen: %w%s", wanted.Name(), err, lastLines(plan))
		}
		time.Sleep(50 * time.Millisecond) // the interval of polling: the program has no other way to report that it is ready
	}
}

// lastLines is the end of the log of a program, which is about to be removed with the proxy.
func lastLines(plan proxy.Plan) string {
	data, err := os.ReadFile(filepath.Join(plan.Machine.LogDir, plan.Machine.Components[0].Name+".log"))
	if err != nil || len(data) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return "; its log ends with:\n" + strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// prepareProxy makes the root directory of a proxy: programs, configuration, certificate.
func prepareProxy(ctx context.Context, cache string, plan proxy.Plan, authority string) (err error) {
	debian, err := image.Fetch(ctx, cache, plan.Programs)
	if err != nil {
		return err
	}
	if err := errors.Join(debian.Unpack(ctx, plan.Root), debian.Close()); err != nil {
		return err
	}
	for _, f := range plan.Files {
		if err := writeFile(f.Path, []byte(f.Text), 0o600); err != nil {
			return err
		}
	}
	if plan.Pair == "" {
		return nil
	}
	a, err := pki.NewAuthority(plan.Endpoint.Name, time.Now())
	if err != nil {
		return err
	}
	pair, err := a.Issue(pki.Subject{User: plan.Endpoint.Name, Names: []string{plan.Endpoint.Name}, IPs: []netip.Addr{plan.Endpoint.Address}})
	if err != nil {
		return err
	}
	if err := writeFile(authority, a.Certificate, 0o644); err != nil {
		return err
	}
	// HAProxy reads both from one file.
	if err := writeFile(plan.Pair+".pem", slices.Concat(pair.Certificate, pair.Key), 0o600); err != nil {
		return err
	}
	return writePair(plan.Pair, pair)
}

// RemoveProxy removes a proxy by its name.
func (p Playground) RemoveProxy(name string) error {
	return record.Exclusively(func(state record.State, t topology.Topology) error {
		i := slices.IndexFunc(state.Proxies, func(o proxy.Proxy) bool { return o.Name() == name })
		if i < 0 {
			names := make([]string, len(state.Proxies))
			for i, o := range state.Proxies {
				names[i] = o.Name()
			}
			return fmt.Errorf("no proxy %q; there are: %s", name, strings.Join(names, ", "))
		}
		c, err := record.Cluster(t, state.Proxies[i].Cluster)
		if err != nil {
			return err
		}
		plan, err := proxy.New(state.Proxies[i], c)
		if err != nil {
			return err
		}
		if err := removeProxy(state.Proxies[i], c, plan); err != nil {
			return err
		}
		state.Proxies = slices.Delete(slices.Clone(state.Proxies), i, i+1)
		return state.Save()
	})
}

// removeProxies removes the proxies of a cluster, and them from the state.
func removeProxies(state *record.State, c topology.Cluster) error {
	for _, o := range state.Proxies {
		if o.Cluster != c.Name {
			continue
		}
		plan, err := proxy.New(o, c)
		if err != nil {
			return err
		}
		if err := removeProxy(o, c, plan); err != nil {
			return err
		}
	}
	state.Proxies = slices.DeleteFunc(slices.Clone(state.Proxies), func(o proxy.Proxy) bool { return o.Cluster == c.Name })
	return nil
}

// removeProxy undoes startProxy, wherever it ended.
func removeProxy(o proxy.Proxy, c topology.Cluster, plan proxy.Plan) error {
	if err := machine.KillGroup(path.Join(topology.Cgroup, plan.Machine.Name), killLimit); err != nil {
		return err
	}
	for _, file := range []string{plan.Machine.Socket, record.SpecPath(plan.Machine.Name)} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", o.Name(), err)
		}
	}
	if err := network.RemoveExtra(plan.Endpoint); err != nil {
		return err
	}
	return removeTree(proxy.Dir(o, c))
}
