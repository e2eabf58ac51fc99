"""Pages of the codes LS003x: tokens, certificates, and what may be listened on."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0030": Page(
        "The token cannot be written",
        "`lockstep token` makes a shared token and writes it to a file that its owner alone can read "
        "(~/.config/lockstep/token, or where --file says). A token that is there is not replaced: the other hosts "
        "would refuse this one. Make it once, copy the file to every host, and use --replace only to change it "
        "everywhere.",
    ),
    "LS0031": Page(
        "The token cannot be used",
        "Hosts show each other a shared token. It is taken from the variable LOCKSTEP_TOKEN, else from the file "
        "~/.config/lockstep/token (or the one that the settings name). The file has to be readable by its owner alone "
        "(mode 600): whoever has the token can read state and give orders. If others could read it, make a new one "
        "with `lockstep token --replace` and copy it to every host.\n\nA token has at least 32 characters, of letters, "
        "digits, - and _. The message never has the token itself, and neither do logs and events.",
    ),
    "LS0032": Page(
        "An address that others can reach needs a token or certificates",
        "What listens on 127.0.0.1 can be reached from this host alone. On any other address other hosts can connect, "
        "read the state of jobs and give orders, so each has to show who it is. Either make a token with `lockstep "
        "token` and copy its file to every host, or give each host a certificate of one authority (TLS), or both. A "
        "token alone is sent as it is: in a network that you do not trust, use TLS, too.",
    ),
    "LS0033": Page(
        "The certificate of a host cannot be used",
        "For TLS each host has a certificate and its key, and all have the certificate of the authority that signed "
        "them; all three are files in PEM. The message has what was wrong when they were loaded. Usual reasons: a "
        "file that is not there or may not be read, a key that belongs to another certificate, a key with a "
        "passphrase.",
    ),
    "LS0034": Page(
        "The address of a host is not understood",
        "Other hosts are named by the address on which their agents listen: http://HOST:PORT, or with TLS "
        "https://HOST:PORT, without anything after the port.",
    ),
    "LS0035": Page(
        "An agent needs a store that all hosts reach",
        "`lockstep agent` makes a host one of those that jobs run on. Hosts find each other, and go on when one dies, "
        "by a store that all of them reach: `lockstep agent --store zookeeper://h1:2181,h2:2181,h3:2181/lockstep`, or "
        "the same address as `store` in lockstep.toml. A store in a folder is for one host, where `lockstep run` needs "
        "no agent beside it. To try it, `lockstep services up zookeeper` starts a ZooKeeper here.",
    ),
    "LS0036": Page(
        "The agent cannot listen there",
        "The address of --listen has to be one of this host's, and the port free. If an agent runs here already, it "
        "serves all jobs: a second one is not needed. HOST:0 takes any free port.",
    ),
}
