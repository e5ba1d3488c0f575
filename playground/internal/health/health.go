// SPDX-License-Identifier: Apache-2.0

// Package health reads the state of a cluster through program ready of component kube.
//
// That program alone decides what counts as ready. Its proof is the e2e suite.
package health

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"liqo.io/liqo/playground/internal/build"
	"liqo.io/liqo/playground/internal/progress"
	"liqo.io/liqo/playground/internal/topology"
)

// Report is the output of program ready of component kube for a cluster.
type Report struct {
	API   bool `json:"api"`
	Nodes struct {
		Ready int `json:"ready"`
		Total int `json:"total"`
		Want  int `json:"want"`
	} `json:"nodes"`
	Addons   map[string]bool `json:"addons,omitempty"`
	NotReady []string        `json:"notReady,omitempty"`
	Done     bool            `json:"done"`
}

func (h Report) String() string {
	if !h.API {
		return "API server not ready"
	}
	parts := []string{fmt.Sprintf("nodes %d/%d", h.Nodes.Ready, h.Nodes.Want)}
	up := 0
	for _, ok := range h.Addons {
		if ok {
			up++
		}
	}
	if len(h.Addons) > 0 {
		parts = append(parts, fmt.Sprintf("addons %d/%d", up, len(h.Addons)))
	}
	return strings.Join(parts, ", ")
}

// readyLimit is generous: a start takes 10 to 20 seconds on two idle cores.
const readyLimit = 4 * time.Minute

func readyArgs(c topology.Cluster) []string {
	args := []string{"--kubeconfig=" + c.Kubeconfig(), "--nodes=" + strconv.Itoa(c.Total())}
	if len(c.Nodes) > 0 {
		args = append(args, "--addons")
	}
	return args
}

// Wait returns when all nodes and addons of a cluster are Ready.
func Wait(ctx context.Context, set build.Set, c topology.Cluster, step *progress.Step) error {
	cmd := exec.CommandContext(ctx, set.Program("ready"), append(readyArgs(c), "--timeout="+readyLimit.String())...)
	// A process group of its own, so that only this program handles an interrupt at the terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("wait for cluster %s: %w", c.Name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("wait for cluster %s: %w", c.Name, err)
	}
	for lines := bufio.NewScanner(output); lines.Scan(); {
		var h Report
		if json.Unmarshal(lines.Bytes(), &h) == nil {
			step.Update(h.String())
		}
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("cluster %s is not Ready: %s (%w); see the logs in %s", c.Name, strings.TrimSpace(stderr.String()), err, c.Dir)
	}
	return nil
}

// Ask reads the state once. An API server that does not answer is a state, not an error.
func Ask(ctx context.Context, set build.Set, c topology.Cluster) (Report, error) {
	out, err := exec.CommandContext(ctx, set.Program("ready"), append(readyArgs(c), "--once")...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Report{}, fmt.Errorf("ask cluster %s: %w", c.Name, err)
	}
	var h Report
	if err := json.Unmarshal(bytes.TrimSpace(out), &h); err != nil {
		if exit != nil {
			return Report{}, fmt.Errorf("ask cluster %s: %s", c.Name, strings.TrimSpace(string(exit.Stderr)))
		}
		return Report{}, fmt.Errorf("ask cluster %s: %w", c.Name, err)
	}
	return h, nil
}
