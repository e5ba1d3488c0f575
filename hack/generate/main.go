// SPDX-License-Identifier: Apache-2.0

// Command generate writes what is made from other files: deep copies, apply configurations and resource
// definitions from the API types, the rights of each role from the marks in the code that needs them, what the
// chart has of each reflected kind, and the pages of docs/reference. With --check it changes nothing and fails if something is not as it would write it.
//
// It must not know what the generated things mean; controller-gen does the work, in the version that hack/tools
// pins. rights.go decides from values, and its proof is rights_test.go.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const (
	chart    = "deployments/liqo"
	crds     = chart + "/crds"
	rightsOf = chart + "/files/rbac-%s.yaml"
)

func main() {
	check := flag.Bool("check", false, "change nothing, fail if something would change")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, *check); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, check bool) error {
	if _, err := os.Stat(crds); err != nil {
		return fmt.Errorf("run this in the root of the repository: %w", err)
	}
	before, err := generated()
	if err != nil {
		return err
	}
	// controller-gen writes beside the types, so a check generates in place and puts back what was there.
	err = generate(ctx)
	after, readErr := generated()
	if err = errors.Join(err, readErr); err != nil || !check {
		return err
	}
	stale := difference(before, after)
	for _, path := range stale {
		err = errors.Join(err, restore(path, before[path]))
	}
	if len(stale) > 0 {
		err = errors.Join(err, fmt.Errorf("not up to date; run: make generate\n  %s", strings.Join(stale, "\n  ")))
	}
	return err
}

// generate runs the generators side by side: each is a process that waits for the Go command most of the time. What is made of types is there before,
// because the others read it.
func generate(ctx context.Context) error {
	if err := types(ctx); err != nil {
		return err
	}
	jobs := []func() error{
		valuesPage,
		podsPage,
		metricsPage,
		commandsPage,
		eventsPage,
		unlisted,
		chartData,
	}
	for _, r := range roles {
		jobs = append(jobs, func() error { return writeRights(ctx, r) })
	}
	results := make([]error, len(jobs))
	var group sync.WaitGroup
	for i, job := range jobs {
		group.Go(func() { results[i] = job() })
	}
	group.Wait()
	return errors.Join(results...)
}

func types(ctx context.Context) error {
	groups, err := filepath.Glob("apis/*/v1*")
	if err != nil {
		return err
	}
	args := []string{"object:headerFile=hack/spdx.txt", "applyconfiguration:headerFile=hack/spdx.txt", "crd", "output:crd:dir=" + crds}
	for _, group := range groups {
		// One by one: two files are written for every group, and with a pattern the last one is left to chance.
		args = append(args, "paths=./"+group)
	}
	if _, err = controllerGen(ctx, args...); err != nil {
		return err
	}
	return errors.Join(appliedKinds(), boundQuantities(), apiPage())
}

// built returns the path of controller-gen. It is built once, before all generators run side by side: with a cold cache each of them would
// compile all of its dependencies.
var built = sync.OnceValues(func() (string, error) {
	output, err := exec.Command("go", "tool", "-modfile=hack/tools/go.mod", "-n", "controller-gen").Output()
	if err != nil {
		return "", fmt.Errorf("build controller-gen: %w", err)
	}
	return strings.TrimSpace(string(output)), nil
})

// controllerGen returns the output of the program.
func controllerGen(ctx context.Context, args ...string) ([]byte, error) {
	program, err := built()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("controller-gen %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return output, nil
}

// generated reads all files that this program writes.
func generated() (map[string][]byte, error) {
	found := map[string][]byte{}
	add := func(path string) error {
		text, err := os.ReadFile(path)
		found[path] = text
		return err
	}
	err := filepath.WalkDir("apis", func(path string, entry fs.DirEntry, err error) error {
		ours := strings.HasPrefix(path, applies+"/") || strings.HasPrefix(filepath.Base(path), "zz_generated.")
		if err != nil || entry.IsDir() || !ours {
			return err
		}
		return add(path)
	})
	for _, pattern := range []string{
		crds + "/*.yaml", fmt.Sprintf(rightsOf, "*"), reference + "/*.md", kindsPath, valuesPath, schemaPath,
	} {
		paths, globErr := filepath.Glob(pattern)
		err = errors.Join(err, globErr)
		for _, path := range paths {
			err = errors.Join(err, add(path))
		}
	}
	return found, err
}

// difference returns the paths whose content is not the same in both.
func difference(before, after map[string][]byte) (paths []string) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		old, had := before[path]
		now, has := after[path]
		if had != has || !bytes.Equal(old, now) {
			paths = append(paths, path)
		}
	}
	return paths
}

// restore puts back what was there, nothing included.
func restore(path string, content []byte) error {
	if content == nil {
		return os.Remove(path)
	}
	return os.WriteFile(path, content, 0o644)
}
