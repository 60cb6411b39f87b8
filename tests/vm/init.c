// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The first process of a test VM (see tests/vm/run). It makes the host's files
// the root file system, runs one command, passes its output and its exit status
// to the host, and switches the machine off.
//
// Why not a shell script: a guest under software emulation pays some 20 ms for
// every process it starts, and nothing but PID 1 itself can tell the output that
// the command wrote before it ended from that of a daemon that it left behind.
//
// The host offers three 9p shares: "root" (/, read-only), "clone" (the source
// tree, writable) and "run" (one directory per VM). "run" holds the script to run
// (`cmd`) and the path of the source tree (`clone`), and receives `status`.
//
// With `bestby.systemd` on the kernel's command line, "root" is the root of another
// system (tests/vm/image). Then it only mounts the shares and becomes that system's
// first process, whose unit bestby-vm.service does the rest.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/reboot.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// The message goes to the console; the host shows the console's end when it finds
// no status.
static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "\nvm-init: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, ": %s\n", strerror(errno));
	va_end(args);
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}

static void mkdirs(const char *path)
{
	char buffer[4096];

	snprintf(buffer, sizeof(buffer), "%s", path);
	for (char *p = buffer + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = 0;
		mkdir(buffer, 0755);
		*p = '/';
	}
	mkdir(buffer, 0755);
}

static int try_mount(const char *type, const char *source, const char *target, unsigned long flags,
		     const char *data)
{
	mkdirs(target);
	return mount(source, target, type, flags, data);
}

static void must_mount(const char *type, const char *source, const char *target,
		       unsigned long flags, const char *data)
{
	if (try_mount(type, source, target, flags, data))
		die("cannot mount %s (%s) on %s", source, type, target);
}

// Modules are numbered in the order in which they can be loaded.
static void load_modules(const char *path)
{
	struct dirent **list;
	int n = scandir(path, &list, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		char name[512];
		int fd;

		if (list[i]->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, list[i]->d_name);
		fd = open(name, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST))
			die("cannot load %s", name);
		close(fd);
	}
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return; // not every kernel has every switch
	if (write(fd, text, strlen(text)) < 0)
		fprintf(stderr, "vm-init: %s: %s\n", path, strerror(errno));
	close(fd);
}

static void read_line(const char *path, char *buffer, size_t size)
{
	FILE *file = fopen(path, "re");

	if (!file || !fgets(buffer, size, file))
		die("cannot read %s", path);
	buffer[strcspn(buffer, "\n")] = 0;
	fclose(file);
}

static void loopback_up(void)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request))
		die("cannot bring up lo");
	close(fd);
}

// No udev here, so find the virtio console port by its name in sysfs.
static int open_port(const char *wanted)
{
	const char *class = "/sys/class/virtio-ports";

	// The host announces the ports some time after the driver has started.
	for (int try = 0; try < 500; try++) {
		DIR *dir = opendir(class);

		for (struct dirent *e; dir && (e = readdir(dir));) {
			char path[512], name[128] = "";
			FILE *file;
			int fd;

			if (e->d_name[0] == '.')
				continue;
			snprintf(path, sizeof(path), "%s/%s/name", class, e->d_name);
			file = fopen(path, "re");
			if (!file)
				continue;
			if (!fgets(name, sizeof(name), file))
				name[0] = 0;
			fclose(file);
			name[strcspn(name, "\n")] = 0;
			if (strcmp(name, wanted))
				continue;
			snprintf(path, sizeof(path), "/dev/%s", e->d_name);
			fd = open(path, O_WRONLY | O_CLOEXEC);
			if (fd >= 0) {
				closedir(dir);
				return fd;
			}
		}
		if (dir)
			closedir(dir);
		usleep(10000);
	}
	die("cannot find the virtio port %s", wanted);
	return -1;
}

// Passes on what is in the pipe now, at most the largest capacity a pipe can have,
// so that a writer that never stops cannot keep us here. Returns 0 at end of file.
static int relay(int from, int to)
{
	static char buffer[65536];

	for (int i = 0; i < 16; i++) {
		ssize_t n = read(from, buffer, sizeof(buffer));

		if (n == 0)
			return 0;
		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		for (char *p = buffer; n > 0;) {
			ssize_t done = write(to, p, n);

			if (done < 0 && errno != EINTR)
				return 0; // the host has gone
			if (done > 0) {
				p += done;
				n -= done;
			}
		}
	}
	return 1;
}

static int self_pipe[2];

static void on_child(int signal)
{
	ssize_t ignored = write(self_pipe[1], "", 1); // a full pipe wakes poll just as well

	(void)signal;
	(void)ignored;
}

static int run(const char *script)
{
	int out[2], err[2], status = 0, port[2];
	struct sigaction action = { .sa_handler = on_child, .sa_flags = SA_RESTART };
	struct pollfd polls[3];
	pid_t child;

	port[0] = open_port("bestby.out");
	port[1] = open_port("bestby.err");
	if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC) ||
	    pipe2(self_pipe, O_CLOEXEC | O_NONBLOCK))
		die("cannot make a pipe");
	sigaction(SIGCHLD, &action, NULL);

	child = fork();
	if (child < 0)
		die("cannot fork");
	if (!child) {
		signal(SIGCHLD, SIG_DFL);
		setsid();
		dup2(open("/dev/null", O_RDONLY), 0);
		dup2(out[1], 1);
		dup2(err[1], 2);
		execl("/bin/sh", "sh", script, (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	close(err[1]);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	polls[0] = (struct pollfd){ .fd = out[0], .events = POLLIN };
	polls[1] = (struct pollfd){ .fd = err[0], .events = POLLIN };
	polls[2] = (struct pollfd){ .fd = self_pipe[0], .events = POLLIN };

	for (int alive = 1; alive;) {
		char drain[64];
		int stat;
		pid_t pid;

		if (poll(polls, 3, 1000) < 0 && errno != EINTR)
			die("poll");
		while (read(self_pipe[0], drain, sizeof(drain)) > 0)
			;
		// First the end, then the output: all that was written before the end is there.
		while ((pid = waitpid(-1, &stat, WNOHANG)) > 0) {
			if (pid == child) {
				alive = 0;
				status = stat;
			}
		}
		for (int i = 0; i < 2; i++)
			if (polls[i].fd >= 0 && !relay(polls[i].fd, port[i]))
				polls[i].fd = -1;
	}
	close(port[0]);
	close(port[1]);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void enter(const char *root)
{
	if (chdir(root) || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		die("cannot change to the new root");
}

// Writes go straight to the host; only executables and mappings are cached.
static void mount_shares(const char *p9)
{
	char options[256], clone[4096];

	snprintf(options, sizeof(options), "%s,cache=mmap", p9);
	must_mount("9p", "run", "/run/vm", 0, options);
	read_line("/run/vm/clone", clone, sizeof(clone));
	must_mount("9p", "clone", clone, 0, options);
}

static int has_argument(const char *wanted)
{
	char line[4096], *rest = line, *word;

	read_line("/proc/cmdline", line, sizeof(line));
	while ((word = strsep(&rest, " ")))
		if (!strcmp(word, wanted))
			return 1;
	return 0;
}

int main(void)
{
	static const char p9[] = "trans=virtio,version=9p2000.L,access=any,msize=512000";
	char options[256], text[32];
	int fd, status, systemd;

	must_mount("proc", "proc", "/proc", 0, NULL);
	must_mount("sysfs", "sysfs", "/sys", 0, NULL);
	must_mount("devtmpfs", "devtmpfs", "/dev", 0, NULL);
	load_modules("/modules");
	systemd = has_argument("bestby.systemd");

	// The host's root below, memory on top: everything can be written, nothing stays.
	snprintf(options, sizeof(options), "%s,cache=loose", p9);
	must_mount("9p", "root", "/lower", MS_RDONLY, options);
	must_mount("tmpfs", "tmpfs", "/upper", 0, "mode=0755");
	mkdirs("/upper/top");
	mkdirs("/upper/work");
	must_mount("overlay", "root", "/new", 0,
		   "lowerdir=/lower,upperdir=/upper/top,workdir=/upper/work");
	must_mount("tmpfs", "tmpfs", "/new/run", MS_NOSUID | MS_NODEV, "mode=0755");
	if (systemd) {
		// It mounts the rest itself.
		enter("/new");
		mount_shares(p9);
		execl("/usr/lib/systemd/systemd", "systemd", (char *)NULL);
		die("cannot start systemd");
	}
	// Here, because the overlay hides what the host has mounted there.
	must_mount("proc", "proc", "/new/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	must_mount("sysfs", "sysfs", "/new/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	must_mount("devtmpfs", "devtmpfs", "/new/dev", MS_NOSUID, NULL);
	must_mount("tmpfs", "tmpfs", "/new/tmp", MS_NOSUID | MS_NODEV, "mode=1777");
	enter("/new");

	try_mount("devpts", "devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC,
		  "gid=5,mode=620,ptmxmode=666");
	try_mount("tmpfs", "tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777");
	if (symlink("/proc/self/fd", "/dev/fd") || symlink("/proc/self/fd/0", "/dev/stdin") ||
	    symlink("/proc/self/fd/1", "/dev/stdout") || symlink("/proc/self/fd/2", "/dev/stderr"))
		errno = 0; // already there
	must_mount("cgroup2", "cgroup2", "/sys/fs/cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	must_mount("bpf", "bpf", "/sys/fs/bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=700");
	try_mount("debugfs", "debugfs", "/sys/kernel/debug", 0, NULL);
	try_mount("tracefs", "tracefs", "/sys/kernel/tracing", 0, NULL);

	mount_shares(p9);

	if (sethostname("bestby-vm", 9))
		die("sethostname");
	loopback_up();
	write_file("/proc/sys/net/core/bpf_jit_enable", "1");

	status = run("/run/vm/cmd");

	// End what the command left behind, so that it writes nothing any more.
	kill(-1, SIGKILL);
	sync();
	fd = open("/run/vm/status", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		die("cannot write the status");
	snprintf(text, sizeof(text), "%d\n", status);
	if (write(fd, text, strlen(text)) < 0 || fsync(fd))
		die("cannot write the status");
	close(fd);
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}
