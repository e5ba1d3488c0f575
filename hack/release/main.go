// SPDX-License-Identifier: Apache-2.0

// Command release builds the files of a release from the last commit: programs, image, chart with the image's digest,
// bills of materials (SPDX), licences of all that is linked in, provenance (SLSA), and the checksums of all of them.
//
// The same commit and the same arguments give the same bytes, in any folder and at any time: TestReproducible.
// It signs nothing and uploads nothing: the publisher of a release does that, with a key that no build has.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	image := flags.String("image", "", "name of the image in the registry that will serve it, without tag; required")
	out := flags.String("out", "bin/release", "folder for the files, which is made anew")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *image == "" || strings.HasPrefix(*image, "localhost/") {
		return errors.New("name the registry that will serve the image, such as IMAGE_NAME=registry.example.com/liqo")
	}
	from, err := lastCommit(ctx)
	if err != nil {
		return err
	}
	return build(ctx, from, *image, *out)
}

// commit is what a release is built from.
type commit struct {
	id   string
	time time.Time
}

func lastCommit(ctx context.Context) (commit, error) {
	changes, err := output(ctx, ".", "git", "status", "--porcelain")
	if err != nil {
		return commit{}, err
	}
	if changes != "" {
		return commit{}, fmt.Errorf("a release is built from a commit, and the working tree differs from the last one:\n%s\nCommit or stash the changes", changes)
	}
	line, err := output(ctx, ".", "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return commit{}, err
	}
	id, seconds, _ := strings.Cut(line, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	return commit{id: id, time: time.Unix(unix, 0).UTC()}, err
}

// build makes the files of the release in the folder out.
func build(ctx context.Context, from commit, image, out string) error {
	tree, err := os.MkdirTemp("", "liqo-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if err := checkOut(ctx, from, tree); err != nil {
		return err
	}
	version, err := chartVersion(filepath.Join(tree, "deployments/liqo/Chart.yaml"))
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	fmt.Println("release: liqo and its image")
	printed, err := output(ctx, tree, "make", "image", "mover", "IMAGE="+image+":"+version, "MOVER="+image+"-mover:"+version)
	if err != nil {
		return err
	}
	digest, err := imageDigest(printed, "liqo-image")
	if err != nil {
		return err
	}
	mover, err := imageDigest(printed, "mover-image")
	if err != nil {
		return err
	}
	platform := runtime.GOOS + "-" + runtime.GOARCH
	name := func(program string) string { return filepath.Join(out, program+"-"+version+"-"+platform) }
	if err := errors.Join(
		move(filepath.Join(tree, "bin/liqo"), name("liqo")),
		move(filepath.Join(tree, "bin/liqo-image.tar"), name("liqo-image")+".tar"),
		move(filepath.Join(tree, "bin/mover-image.tar"), name("liqo-mover-image")+".tar"),
	); err != nil {
		return err
	}

	fmt.Println("release: liqoctl, which carries the chart with the image's digest")
	if err := pinImage(filepath.Join(tree, "deployments/liqo/values.yaml"), image, digest, mover); err != nil {
		return err
	}
	if _, err := output(ctx, tree, "make", "build"); err != nil {
		return err
	}
	if err := move(filepath.Join(tree, "bin/liqoctl"), name("liqoctl")); err != nil {
		return err
	}
	if err := packChart(filepath.Join(tree, "deployments/liqo"), filepath.Join(out, "liqo-"+version+".tgz"), from.time); err != nil {
		return err
	}

	fmt.Println("release: licences, bills of materials, provenance, checksums")
	known, err := licences(ctx, tree)
	if err != nil {
		return err
	}
	made := contents{from: from, version: version, image: image + "@" + digest, licences: known}
	if err := made.describe(out, name("liqo"), name("liqoctl")); err != nil {
		return err
	}
	fmt.Printf("release: %s of commit %.12s is in %s; the image has digest %s\n", version, from.id, out, digest)
	return nil
}

// contents is what a release is made of.
type contents struct {
	from     commit
	version  string
	image    string // with digest
	licences map[string]licence
}

// describe writes the files about the others to the folder out: licences, bills of materials, provenance, checksums.
func (c contents) describe(out string, programs ...string) error {
	if err := os.WriteFile(filepath.Join(out, "LICENCES.txt"), notices(c.licences), 0o644); err != nil {
		return err
	}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return fmt.Errorf("read what %s was built from: %w", program, err)
		}
		document, err := c.billOfMaterials(filepath.Base(program), info)
		if err != nil {
			return err
		}
		if err := os.WriteFile(program+".spdx.json", document, 0o644); err != nil {
			return err
		}
	}
	sums, err := checksums(out)
	if err != nil {
		return err
	}
	statement, err := c.provenance(sums)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "provenance.json"), statement, 0o644); err != nil {
		return err
	}
	if sums, err = checksums(out); err != nil {
		return err
	}
	var text bytes.Buffer
	for _, sum := range sums {
		fmt.Fprintf(&text, "%s  %s\n", sum.sha256, sum.name)
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), text.Bytes(), 0o644)
}

// checkOut writes the files of the commit to the folder tree. Nothing else gets there: no file that Git ignores, and no history.
func checkOut(ctx context.Context, from commit, tree string) error {
	archive := filepath.Join(tree, ".archive.tar")
	if _, err := output(ctx, ".", "git", "archive", "--format=tar", "-o", archive, from.id); err != nil {
		return err
	}
	if _, err := output(ctx, tree, "tar", "-xf", archive); err != nil {
		return err
	}
	return os.Remove(archive)
}

var appVersion = regexp.MustCompile(`(?m)^appVersion: "(.+)"$`)

func chartVersion(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	found := appVersion.FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s has no line `appVersion: \"…\"`", file)
	}
	return string(found[1]), nil
}

var digestPattern = regexp.MustCompile(`(?m)^bin/([a-z-]+)\.tar .* (sha256:[0-9a-f]{64})$`)

// imageDigest finds the digest of an image in what make printed.
func imageDigest(printed, image string) (string, error) {
	for _, found := range digestPattern.FindAllStringSubmatch(printed, -1) {
		if found[1] == image {
			return found[2], nil
		}
	}
	return "", fmt.Errorf("make printed no digest of bin/%s.tar: %q", image, printed)
}

// pinImage sets the names and digests of the images in the chart's values. mover is the digest of the image that copies volumes.
func pinImage(file, image, digest, mover string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	pinned := string(text)
	for key, value := range map[string]string{
		"imageName: localhost/liqo": "imageName: " + image, `digest: ""`: "digest: " + digest,
		"  moverImage: localhost/liqo-mover": "  moverImage: " + image + "-mover", `  moverDigest: ""`: "  moverDigest: " + mover,
	} {
		if strings.Count("\n"+pinned, "\n"+key+"\n") != 1 {
			return fmt.Errorf("%s should have the line %q once", file, key)
		}
		pinned = strings.TrimPrefix(strings.Replace("\n"+pinned, "\n"+key+"\n", "\n"+value+"\n", 1), "\n")
	}
	return os.WriteFile(file, []byte(pinned), 0o644)
}

// checksum is one line of SHA256SUMS.
type checksum struct{ name, sha256 string }

// checksums returns those of all files in the folder, by name.
func checksums(folder string) ([]checksum, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	sums := make([]checksum, 0, len(entries))
	for _, entry := range entries {
		file, err := os.Open(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		hash := sha256.New()
		_, err = io.Copy(hash, file)
		if err = errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
		sums = append(sums, checksum{entry.Name(), fmt.Sprintf("%x", hash.Sum(nil))})
	}
	return sums, nil
}

// move copies the file, as the folders may be on different file systems.
func move(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to, content, info.Mode().Perm()), os.Remove(from))
}

// output runs a command in a folder and returns what it printed. Its error has what it printed to stderr.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = dir
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(stdout.String()), nil
}
