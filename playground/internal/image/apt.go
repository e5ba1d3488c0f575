// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// debArchive is one package apt chose.
type debArchive struct {
	name, version string
	file          string // as apt calls it in its archive directory
	size          int64
	sha256        string // hex; empty if the index has another hash
	path          string // where it is, once downloaded
}

func (a debArchive) id() string { return a.name + "=" + a.version }

// ErrApt marks packages apt could not resolve or download, most often because the
// mirror is out of reach.
var ErrApt = errors.New("apt could not get the packages")

// apt runs apt-get against an empty machine: its status file lists nothing as
// installed, so it resolves full dependencies; it writes only below dir.
type apt struct {
	dir string
	// ownLists makes it use package lists below dir instead of the machine's.
	ownLists bool
}

// download brings packages and their dependencies into dir, and returns them sorted
// by name. The machine's own package lists are used first. They may be missing or
// too old (files gone from the mirror); then fresh ones are fetched into dir, which
// leaves the machine's alone.
func download(ctx context.Context, dir string, packages []string) ([]debArchive, error) {
	a := apt{dir: dir}
	if err := a.prepare(); err != nil {
		return nil, err
	}
	archives, first := a.fetch(ctx, packages)
	if first == nil || ctx.Err() != nil {
		return archives, first
	}
	a.ownLists = true
	if err := run(a.command(ctx, "update")); err != nil {
		return nil, errors.Join(first, fmt.Errorf("fresh package lists: %w; is the network reachable?", err))
	}
	archives, err := a.fetch(ctx, packages)
	if err != nil {
		// An update that reached nothing counts as success to apt-get, so the first error
		// is often the one that names the cause.
		return nil, errors.Join(first, fmt.Errorf("with fresh package lists: %w; is the network reachable?", err))
	}
	return archives, nil
}

func (a apt) prepare() error {
	for _, dir := range []string{"archives/partial", "none/partial", "cache", "dpkg", "state/lists/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, dir), 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(a.dir, "dpkg/status"), nil, 0o644)
}

// command is an apt-get call. archives/ would hide files already there from a plan,
// so plans are made with the empty none/.
func (a apt) command(ctx context.Context, args ...string) *exec.Cmd {
	archives := "archives"
	if slices.Contains(args, "--print-uris") {
		archives = "none"
	}
	options := []string{
		"-q", "-y", "--no-install-recommends",
		"-o", "Dir::State::status=" + filepath.Join(a.dir, "dpkg/status"),
		"-o", "Dir::Cache=" + filepath.Join(a.dir, "cache"),
		"-o", "Dir::Cache::archives=" + filepath.Join(a.dir, archives),
		"-o", "APT::Sandbox::User=", // the directory may be one that apt's own user cannot enter
		"-o", "Acquire::Retries=3",
	}
	if a.ownLists {
		options = append(options,
			"-o", "Dir::State::lists="+filepath.Join(a.dir, "state/lists"),
			"-o", "APT::Update::Post-Invoke=", "-o", "APT::Update::Post-Invoke-Success=")
	}
	command := exec.CommandContext(ctx, "apt-get", append(options, args...)...)
	command.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	return command
}

// fetch plans, downloads what is missing, and checks every archive.
func (a apt) fetch(ctx context.Context, packages []string) ([]debArchive, error) {
	var uris strings.Builder
	plan := a.command(ctx, append([]string{"--print-uris", "-qq", "install"}, packages...)...)
	plan.Stdout = &uris
	if err := run(plan); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrApt, err)
	}
	archives, err := parseURIs(uris.String())
	if err != nil {
		return nil, err
	}
	missing := false
	for i, archive := range archives {
		archives[i].path = filepath.Join(a.dir, "archives", archive.file)
		present, err := isFile(archives[i].path, archive.size)
		if err != nil {
			return nil, err
		}
		missing = missing || !present
	}
	if missing {
		if err := run(a.command(ctx, append([]string{"--download-only", "install"}, packages...)...)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrApt, err)
		}
	}
	for _, archive := range archives {
		if err := archive.check(); err != nil {
			return nil, err
		}
	}
	return archives, nil
}

// check compares a downloaded archive with the signed package list. apt did so
// when it fetched it; the file may have been damaged in the cache since.
func (a debArchive) check() (err error) {
	file, err := os.Open(a.path)
	if err != nil {
		return fmt.Errorf("package %s: %w", a.id(), err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	if err != nil {
		return fmt.Errorf("package %s: %w", a.id(), err)
	}
	got := hex.EncodeToString(sum.Sum(nil))
	if size != a.size || a.sha256 != "" && got != a.sha256 {
		return fmt.Errorf("package %s: %w: %s has %d bytes and SHA-256 %s, the package list states %d and %s; remove the file and run again",
			a.id(), errDamaged, a.path, size, got, a.size, a.sha256)
	}
	return nil
}

// errDamaged marks a cached package that differs from the package list.
var errDamaged = errors.New("damaged package file")

// parseURIs reads the lines of apt-get --print-uris: 'URI' FILE SIZE HASH, where FILE
// is NAME_VERSION_ARCHITECTURE.deb with a colon in the version written %3a.
func parseURIs(text string) ([]debArchive, error) {
	var archives []debArchive
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "'") {
			continue
		}
		if len(fields) < 3 {
			return nil, fmt.Errorf("%w: %q", errPlan, line)
		}
		size, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: %q: %w", errPlan, line, err)
		}
		parts := strings.Split(fields[1], "_")
		if len(parts) != 3 || filepath.Base(fields[1]) != fields[1] {
			return nil, fmt.Errorf("%w: file name in %q", errPlan, line)
		}
		version, err := url.PathUnescape(parts[1])
		if err != nil {
			return nil, fmt.Errorf("%w: version in %q: %w", errPlan, line, err)
		}
		archive := debArchive{name: parts[0], version: version, file: fields[1], size: size}
		if len(fields) > 3 {
			if hash, ok := strings.CutPrefix(fields[3], "SHA256:"); ok {
				archive.sha256 = hash
			}
		}
		archives = append(archives, archive)
	}
	if len(archives) == 0 {
		return nil, fmt.Errorf("%w: no package in it", errPlan)
	}
	slices.SortFunc(archives, func(a, b debArchive) int { return strings.Compare(a.id(), b.id()) })
	return archives, nil
}

// errPlan marks output of apt-get that is not as documented.
var errPlan = errors.New("plan of apt-get not understood")
