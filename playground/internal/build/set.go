// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"liqo.io/liqo/playground/internal/cluster"
	"liqo.io/liqo/playground/internal/image"
	"liqo.io/liqo/playground/internal/image/oci"
)

// imageSource are the directories, below the playground's, that decide what is in an image.
var imageSource = []string{"internal/image"}

// Set is a directory that holds one consistent set of everything a cluster is started
// from. It is complete if it exists.
type Set struct{ Dir string }

// Tools returns the paths of the parts of the set.
func (s Set) Tools() cluster.Tools {
	return cluster.Tools{
		Bin: s.path("bin"), CNI: s.path("cni"), Images: s.path("images"),
		Kwok: s.path(kwok, "kwok"), KwokStages: s.path(kwok, stagesFile),
		PauseImage: image.PauseName, CoreDNSImage: image.CoreDNSName, MetricsServerImage: image.MetricsServerName,
	}
}

// Program is the path of a program of the set.
func (s Set) Program(name string) string { return s.path("bin", name) }

func (s Set) path(parts ...string) string {
	return filepath.Join(append([]string{s.Dir}, parts...)...)
}

// stagesFile defines how kwok's nodes and pods behave.
const stagesFile = "stages.yaml"

// Find returns the set that belongs to the source, and whether it is built, with the given extra components.
func (b Builder) Find(extras ...string) (Set, bool, error) {
	h := sha256.New()
	for _, c := range Components {
		key, err := Key(b.Source, c)
		if err != nil {
			return Set{}, false, err
		}
		_, _ = fmt.Fprintln(h, c.Name, key)
	}
	_, _ = fmt.Fprintln(h, Programs)
	for _, dir := range imageSource {
		if err := hashDir(h, filepath.Join(b.Source, dir)); err != nil {
			return Set{}, false, fmt.Errorf("hash the source of the images: %w", err)
		}
	}
	set := Set{Dir: filepath.Join(b.Cache, "set", hex.EncodeToString(h.Sum(nil))[:16])}
	for _, dir := range append([]string{""}, extras...) {
		_, err := os.Stat(set.path(dir))
		if errors.Is(err, fs.ErrNotExist) {
			return set, false, nil
		}
		if err != nil {
			return Set{}, false, fmt.Errorf("look for built programs: %w", err)
		}
	}
	return set, true, nil
}

// Build returns the set that belongs to the source, and builds its missing parts and the given extra components.
func (b Builder) Build(ctx context.Context, extras ...string) (Set, error) {
	if set, built, err := b.Find(extras...); err != nil || built {
		return set, err
	}
	unlock, err := b.lock()
	if err != nil {
		return Set{}, err
	}
	defer unlock()
	set, built, err := b.Find(extras...)
	if err != nil || built {
		return set, err // another process has built it meanwhile
	}
	dirs, err := b.components(ctx, extras)
	if err != nil {
		return Set{}, err
	}
	if _, basic, err := b.Find(); err != nil {
		return Set{}, err
	} else if !basic {
		step := b.Progress.Step("assemble programs and images")
		err := atomically(set.Dir, func(tmp string) error { return b.assemble(dirs, tmp) })
		step.End(err)
		if err != nil {
			return Set{}, err
		}
	}
	return set, b.addExtras(ctx, set, dirs, extras)
}

// Complete adds extra components to a set that is in use, whose programs may be of an older source.
func (b Builder) Complete(ctx context.Context, set Set, extras ...string) error {
	missing := slices.DeleteFunc(slices.Clone(extras), func(name string) bool {
		_, err := os.Stat(set.path(name))
		return err == nil
	})
	if len(missing) == 0 {
		return nil
	}
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	defer unlock()
	dirs := map[string]string{}
	for _, c := range Components {
		if slices.Contains(missing, c.Name) {
			if dirs[c.Name], err = b.component(ctx, c, newPace([]Component{c}, time.Now)); err != nil {
				return err
			}
		}
	}
	return b.addExtras(ctx, set, dirs, missing)
}

// components builds what is missing of the components that are no extra ones, and of the given extra ones. It returns their directories by name.
func (b Builder) components(ctx context.Context, extras []string) (dirs map[string]string, err error) {
	var wanted, missing []Component
	for _, c := range Components {
		if c.Extra && !slices.Contains(extras, c.Name) {
			continue
		}
		wanted = append(wanted, c)
		if _, built, err := b.kept(c); err != nil {
			return nil, err
		} else if !built {
			missing = append(missing, c)
		}
	}
	dirs, pace := map[string]string{}, newPace(missing, time.Now)
	for _, c := range wanted {
		if dirs[c.Name], err = b.component(ctx, c, pace); err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

// addExtras puts extra components into a set beside what all clusters share. A directory of one that exists is complete.
func (b Builder) addExtras(ctx context.Context, set Set, dirs map[string]string, extras []string) error {
	for _, name := range extras {
		dir := set.path(name)
		if _, err := os.Stat(dir); err == nil {
			continue
		}
		err := atomically(dir, func(tmp string) error {
			if err := link(dirs[name], tmp); err != nil || name != kwok {
				return err
			}
			return b.kwokStages(ctx, filepath.Join(tmp, stagesFile))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Assets returns a directory with the API server, etcd and kubectl by their names, as
// integration tests look for them. It builds that one component only, which needs neither
// root nor a C compiler.
func (b Builder) Assets(ctx context.Context) (dir string, err error) {
	unlock, err := b.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	i := slices.IndexFunc(Components, func(c Component) bool { return c.Name == "kube" })
	kube, err := b.component(ctx, Components[i], newPace(Components[i:i+1], time.Now))
	if err != nil {
		return "", err
	}
	dir = filepath.Join(b.Cache, "assets", filepath.Base(kube))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, atomically(dir, func(tmp string) error { return linkPrograms(kube, tmp) })
}

// linkPrograms puts the multi-call program into a directory under each of its names.
func linkPrograms(kube, to string) error {
	for _, name := range append([]string{"kube"}, Programs...) {
		if err := os.Link(filepath.Join(kube, "kube"), filepath.Join(to, name)); err != nil {
			return fmt.Errorf("assemble programs: %w", err)
		}
	}
	return nil
}

func (b Builder) assemble(dirs map[string]string, tmp string) error {
	for _, dir := range []string{"bin", "cni", "images"} {
		if err := os.Mkdir(filepath.Join(tmp, dir), 0o755); err != nil {
			return fmt.Errorf("assemble programs: %w", err)
		}
	}
	for _, c := range Components {
		if c.Name == "kube" || c.Extra {
			continue // kube is there under all its names, below; extra components have directories of their own
		}
		into := "bin"
		if c.Plugins {
			into = "cni"
		}
		if err := link(dirs[c.Name], filepath.Join(tmp, into)); err != nil {
			return err
		}
	}
	if err := linkPrograms(dirs["kube"], filepath.Join(tmp, "bin")); err != nil {
		return err
	}
	return writeImages(filepath.Join(tmp, "bin"), filepath.Join(tmp, "images"))
}

// link puts the programs of a component into a directory.
func link(from, to string) error {
	files, err := os.ReadDir(from)
	if err != nil {
		return fmt.Errorf("assemble programs: %w", err)
	}
	for _, f := range files {
		if err := os.Link(filepath.Join(from, f.Name()), filepath.Join(to, f.Name())); err != nil {
			return fmt.Errorf("assemble programs: %w", err)
		}
	}
	return nil
}

// kwokStages joins the stage files of the kwok module: run outside a cluster, the program
// has none and does nothing.
func (b Builder) kwokStages(ctx context.Context, to string) error {
	cmd := exec.CommandContext(ctx, b.Go(), "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
	cmd.Dir = filepath.Join(b.Source, "components", "kwok")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("find the kwok module: %w", err)
	}
	var stages []string
	for _, dir := range []string{"node/fast", "node/heartbeat-with-lease", "pod/fast"} {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "kustomize", "stage", dir, "*.yaml"))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("the kwok module has no stages in %s (%w); has its layout changed?", dir, err)
		}
		for _, f := range files {
			if filepath.Base(f) == "kustomization.yaml" {
				continue
			}
			data, err := os.ReadFile(f)
			if err != nil {
				return fmt.Errorf("read kwok stage: %w", err)
			}
			stages = append(stages, strings.TrimSpace(string(data)))
		}
	}
	if err := os.WriteFile(to, []byte(strings.Join(stages, "\n---\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("write kwok stages: %w", err)
	}
	return nil
}

// imageBinaries are the programs, of a set's bin directory, that images are made of.
func imageBinaries(bin string) image.Binaries {
	return image.Binaries{
		Pause: filepath.Join(bin, "pause"), CoreDNS: filepath.Join(bin, "coredns"),
		MetricsServer: filepath.Join(bin, "metrics-server"), Demo: filepath.Join(bin, "demo"),
	}
}

// images that are part of every set; image tools is not, because it needs Debian's packages.
var images = map[string]func(image.Binaries) (oci.Image, error){
	"pause": image.Pause, "coredns": image.CoreDNS, "metrics-server": image.MetricsServer, "demo": image.Demo,
}

// SetImages names the images that every set holds, as IMAGE.tar in its images directory.
func SetImages() []string {
	names := make([]string, 0, len(images))
	for name := range images {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func writeImages(bin, to string) error {
	for name, makeImage := range images {
		img, err := makeImage(imageBinaries(bin))
		if err != nil {
			return fmt.Errorf("compose image %s: %w", name, err)
		}
		if _, err := oci.WriteFile(filepath.Join(to, name+".tar"), img); err != nil {
			return err
		}
	}
	return nil
}

// Tools builds the image of network tools and returns its archive. It needs Debian's
// packages, so it is built on demand; the packages are kept in the cache.
func (b Builder) Tools(ctx context.Context) (archive string, err error) {
	unlock, err := b.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	dir := filepath.Join(b.Cache, "tools")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create cache: %w", err)
	}
	archive = filepath.Join(dir, "tools.tar")
	h := sha256.New()
	for _, src := range imageSource {
		if err := hashDir(h, filepath.Join(b.Source, src)); err != nil {
			return "", fmt.Errorf("hash the source of the images: %w", err)
		}
	}
	key, keyFile := hex.EncodeToString(h.Sum(nil)), archive+".key"
	if have, err := os.ReadFile(keyFile); err == nil && string(have) == key {
		return archive, nil
	}
	step := b.Progress.Step("build image tools")
	defer func() { step.End(err) }()
	debian, err := image.Fetch(ctx, filepath.Join(b.Cache, "debian"), image.ToolsSelection())
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, debian.Close()) }()
	if _, err := oci.WriteFile(archive, image.Tools(debian)); err != nil {
		return "", err
	}
	if err := os.WriteFile(keyFile, []byte(key), 0o644); err != nil {
		return "", fmt.Errorf("keep image tools: %w", err)
	}
	return archive, nil
}
