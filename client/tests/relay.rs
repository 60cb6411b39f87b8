//! The example `relay`: viewers get whole images, and one that does not keep up misses some.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used)]

use std::{
    env,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::Duration,
};

/// "JPEG" of 200 kB: its number, and bytes that follow from it.
fn image(number: u32) -> Vec<u8> {
    let mut image = vec![0xff, 0xd8];
    image.extend_from_slice(&number.to_be_bytes());
    image.extend((0..200_000).map(|n| (n as u32 ^ number) as u8 & 0x7f));
    image.extend_from_slice(&[0xff, 0xd9]);
    image
}

fn relay() -> (Child, ChildStdin, String) {
    let mut path = env::current_exe().unwrap();
    path.pop(); // target/debug/deps/relay-HASH
    path.set_file_name("examples");
    let mut child = Command::new(path.join("relay"))
        .arg("127.0.0.1:0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.as_mut().unwrap());
    output.read_line(&mut line).unwrap();
    let address = line
        .trim()
        .trim_start_matches("http://")
        .trim_end_matches('/');
    let images = child.stdin.take().unwrap();
    (child, images, address.to_owned())
}

fn view(address: &str) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut stream = BufReader::new(socket);
    let mut line = String::new();
    while line != "--image\r\n" {
        line.clear();
        stream.read_line(&mut line).unwrap();
    }
    stream
}

/// Numbers of the images until the stream ends.
fn images(mut stream: BufReader<TcpStream>) -> Vec<u32> {
    let mut numbers = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).unwrap() == 0 {
            return numbers;
        }
        assert_eq!(line, "Content-Type: image/jpeg\r\n");
        line.clear();
        stream.read_line(&mut line).unwrap();
        let len: usize = line.trim().split_once(": ").unwrap().1.parse().unwrap();
        let mut rest = vec![0; 2 + len + 11];
        stream.read_exact(&mut rest).unwrap();
        let got = &rest[2..2 + len];
        let number = u32::from_be_bytes(*got[2..].first_chunk().unwrap());
        assert_eq!(got, image(number));
        assert_eq!(rest[2 + len..], *b"\r\n--image\r\n");
        numbers.push(number);
    }
}

#[test]
fn relay_gives_each_viewer_whole_images_and_a_slow_one_fewer() {
    let (mut child, mut input, address) = relay();
    let fast = view(&address);
    let slow = view(&address);
    let gone = view(&address);
    let fast = thread::spawn(move || images(fast));
    thread::sleep(Duration::from_millis(300));
    for number in 0..150 {
        input.write_all(&image(number)).unwrap();
        if number == 50 {
            gone.get_ref().shutdown(std::net::Shutdown::Both).unwrap();
        }
        thread::sleep(Duration::from_millis(10));
    }
    let slow = thread::spawn(move || images(slow));
    thread::sleep(Duration::from_millis(700));
    for number in 150..160 {
        input.write_all(&image(number)).unwrap();
        thread::sleep(Duration::from_millis(30));
    }
    drop(input);
    let (fast, slow) = (fast.join().unwrap(), slow.join().unwrap());
    assert!(child.wait().unwrap().success());
    println!("{} and {} of 160", fast.len(), slow.len());
    assert!(fast.is_sorted() && slow.is_sorted());
    // Nobody keeps images for the slow one, and none of its images is older than its time.
    assert!(slow.len() < 150, "{}", slow.len());
    assert!(fast.len() > slow.len(), "{}", fast.len());
    assert!(slow.iter().any(|number| *number >= 150), "{slow:?}");
}

#[test]
fn relay_without_an_address_says_what_it_wants() {
    let mut path = env::current_exe().unwrap();
    path.pop();
    path.set_file_name("examples");
    let output = Command::new(path.join("relay")).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("usage"));
}
