// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// pageFile is the picture of the shop that the Quick Start leaves running, as a browser shows it.
const pageFile = "examples/quick-start/page.png"

// slowPage bounds the picture of a page: the browser waits for all of it.
const slowPage = time.Minute

var forwarded = regexp.MustCompile(`Forwarding from 127\.0\.0\.1:(\d+)`)

// page forwards a port to the shop, as the guide does, and writes what a browser shows there. The variable KUBECONFIG selects the cluster.
func page() error {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		return fmt.Errorf("%w; install it: apt-get install --no-install-recommends chromium", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), slowPage)
	defer cancel()
	forward := exec.CommandContext(ctx, "kubectl", "port-forward", "-n", "liqo-demo", "service/frontend-external", ":80")
	forward.Stderr = os.Stderr
	output, err := forward.StdoutPipe()
	if err != nil {
		return err
	}
	if err := forward.Start(); err != nil {
		return fmt.Errorf("port-forward: %w", err)
	}
	defer func() {
		cancel()
		_ = forward.Wait() // it was ended on purpose
	}()
	port, err := portOf(output)
	if err != nil {
		return fmt.Errorf("port-forward to the shop: %w; start it: make quickstart, with its KUBECONFIG here", err)
	}
	file, err := filepath.Abs(pageFile)
	if err != nil {
		return err
	}
	shown, err := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,1400",
		"--screenshot="+file, "http://localhost:"+port+"/").CombinedOutput()
	if err != nil {
		return fmt.Errorf("browser: %w: %s", err, shown)
	}
	_, err = os.Stat(file)
	return err
}

// portOf returns the local port that kubectl reports.
func portOf(output io.Reader) (string, error) {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if found := forwarded.FindStringSubmatch(lines.Text()); found != nil {
			return found[1], nil
		}
	}
	return "", errors.Join(lines.Err(), errors.New("it ended before it listened"))
}
