// Command oracle answers scheduling questions with the unmodified upstream
// kube-scheduler code.
//
// It reads one JSON "world" per line on stdin and writes one JSON answer per
// line on stdout. See README.md for the formats. Other modes:
//
//	oracle -plugins      print the default plugin list of the linked version
//	oracle -configs      read one KubeSchedulerConfiguration (JSON) per line
//	                     and print what upstream makes of it
//	oracle -time         print how long the decisions of each world take
//	oracle -apiserver    print every world with its objects validated and
//	                     defaulted by the apiserver's own code, do not schedule
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// answerLine is one line of output in the default mode.
type answerLine struct {
	World  json.RawMessage `json:"world,omitempty"`
	ID     string          `json:"id,omitempty"`
	Expect *Answer         `json:"expect,omitempty"`
	Error  string          `json:"error,omitempty"`
}

func main() {
	var (
		showPlugins = flag.Bool("plugins", false, "print the default plugins as JSON and exit")
		apiserver   = flag.Bool("apiserver", false, "only validate and default the objects of each world")
		timing      = flag.Bool("time", false, "print how long the decisions of each world take")
		configs     = flag.Bool("configs", false, "read configurations instead of worlds")
		embed       = flag.Bool("embed", false, "repeat the world in each answer line")
		normalise   = flag.Bool("normalise", false, "run -apiserver on each world before scheduling it")
		repeat      = flag.Int("repeat", 1, "schedule each world this often and fail it if the answers differ")
		skipErrors  = flag.Bool("skip-errors", false, "log failing worlds to stderr and leave them out of the output")
		verbose     = flag.Bool("v", false, "print upstream's log to stderr")
	)
	flag.Parse()

	if !*verbose {
		klog.SetLogger(logr.Discard())
		utilruntime.ErrorHandlers = nil
	}

	if *showPlugins {
		out, err := defaultPlugins()
		if err != nil {
			fatal(err)
		}
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", " ")
		if err := enc.Encode(out); err != nil {
			fatal(err)
		}
		return
	}

	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	defer out.Flush()
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)

	start, count := time.Now(), 0
	for {
		line, readErr := in.ReadBytes('\n')
		if len(line) > 1 {
			count++
			if *configs {
				if err := enc.Encode(readConfig(bytes.TrimSpace(line))); err != nil {
					fatal(err)
				}
				out.Flush()
				continue
			}
			if *timing {
				w, err := parseWorld(line)
				if err != nil {
					fatal(err)
				}
				if err := enc.Encode(timeWorld(w)); err != nil {
					fatal(err)
				}
				out.Flush()
				continue
			}
			if err := handle(line, options{*apiserver, *normalise, *embed, *repeat, *skipErrors}, enc); err != nil {
				fatal(err)
			}
			out.Flush()
		}
		if readErr == io.EOF {
			break
		}
		if readErr != nil {
			fatal(readErr)
		}
	}
	if *verbose {
		fmt.Fprintf(os.Stderr, "oracle: %d worlds in %.1fs\n", count, time.Since(start).Seconds())
	}
}

// options are the flags that matter per world.
type options struct {
	apiserver, normalise, embed bool
	repeat                      int
	skipErrors                  bool
}

func handle(line []byte, opt options, enc *json.Encoder) error {
	fail := func(id string, err error) error {
		if opt.skipErrors {
			fmt.Fprintf(os.Stderr, "oracle: world %s: %v\n", id, err)
			return nil
		}
		return enc.Encode(answerLine{ID: id, Error: err.Error()})
	}
	w, err := parseWorld(line)
	if err != nil {
		return fail("?", err)
	}
	restore, err := setFeatureGates(w.FeatureGates)
	if err != nil {
		return fail(w.ID, err)
	}
	defer restore()
	if opt.apiserver || opt.normalise {
		if err := w.normalise(); err != nil {
			return fail(w.ID, err)
		}
		if line, err = json.Marshal(w); err != nil {
			return err
		}
		if opt.apiserver {
			return enc.Encode(json.RawMessage(line))
		}
	}
	answer, err := decideWorld(w)
	if err != nil {
		return fail(w.ID, err)
	}
	for i := 1; i < opt.repeat; i++ {
		again, err := decideWorld(w)
		if err != nil {
			return fail(w.ID, err)
		}
		a, _ := json.Marshal(answer)
		b, _ := json.Marshal(again)
		if !bytes.Equal(a, b) {
			return fail(w.ID, errors.New("upstream does not always decide this world the same way"))
		}
	}
	res := answerLine{ID: w.ID, Expect: answer}
	if opt.embed {
		res.ID, res.World = "", line
	}
	return enc.Encode(res)
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "oracle:", err)
	os.Exit(1)
}
